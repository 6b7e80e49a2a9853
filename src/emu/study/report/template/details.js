// What is known of the memory or the state of the greedy episode that was clicked: its values and its drawing.

function showDetails(element, run, shot, chosen) {
  if (!chosen) {
    element.replaceChildren(
      make("h3", { textContent: "Nothing chosen" }),
      make("p", { className: "note", textContent: "Click or tap a memory, or a state of the greedy episode, to see its values and how it looks." }),
    );
    return;
  }
  const [title, rows] = chosen.kind === "path" ? ofPath(shot.episode, chosen.index) : ofMemory(shot.memories, chosen.index);
  const table = make("dl");
  for (const [name, value] of rows) table.append(make("dt", { textContent: name }), make("dd", { textContent: value }));
  element.replaceChildren(make("h3", { textContent: title }), table, picture(run, shot, chosen));
  const canvas = element.querySelector("canvas");
  const drawn = unpack(chosen.kind === "path" ? shot.episode.drawn : shot.memories.drawn);
  if (canvas) drawSketch(canvas, run.scene, drawn, chosen.index);
}

function ofMemory(memories, i) {
  const value = (name) => unpack(memories[name])[i];
  return ["A memory", [
    ["highest return", number(value("best_return"))],
    ["desirable", value("desirable") ? "yes" : "no"],
    ["visits", number(value("visits"))],
    ["desirable visits", number(value("desirable_visits"))],
    ["time in the episode", String(value("time"))],
    ["key", keyText(memories, i)],
  ]];
}

function ofPath(episode, i) {
  const value = (name) => unpack(episode[name])[i];
  const found = value("found");
  return [`State ${value("time")} of the greedy episode`, [
    ["collected so far", number(value("total"))],
    ["recalls a memory", found ? "yes" : "no"],
    ["its highest return", found ? number(value("best_return")) : "–"],
    ["it is desirable", found ? (value("desirable") ? "yes" : "no") : "–"],
    ["episode", episode.won ? "won" : "not won"],
    ["key", keyText(episode, i)],
  ]];
}

function keyText(table, i) {
  const keys = unpack(table.key);
  const dimension = keys.length / (table.count ?? unpack(table.time).length);
  return Array.from(keys.slice(i * dimension, (i + 1) * dimension), (k) => k.toFixed(2)).join(", ");
}

function picture(run, shot, chosen) {
  if (!run.scene) return make("p", { className: "note", textContent: "This environment offers no drawing of its states." });
  const names = new Map();
  for (const figure of run.scene.figures) if (figure.letter) names.set(figure.letter, figure.name);
  const text = [...names].map(([letter, name]) => `${letter} ${name}`).join(", ");
  const canvas = make("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "the state, drawn");
  return make("figure", {}, canvas, make("figcaption", { textContent: text }));
}
