// The curves section: metric, band and seeds to choose, a legend that switches curves on and off, a panel per task.

const NAMES = {
  score: "win rate or return, greedy evaluation",
  test_win_rate: "win rate, greedy evaluation",
  test_return: "return, greedy evaluation",
  test_length: "episode length, greedy evaluation",
  train_win_rate: "win rate, training episodes",
  train_return: "return, training episodes",
};

function startCurves() {
  const { runs, metrics, thinned, left_out } = data.curves;
  const hidden = new Set();
  const charts = data.panels.map((panel) => new Chart(panel, runs.filter((run) => run.panel === panel)));
  byId("panels").append(...charts.map((chart) => chart.element));
  byId("metric").append(...metrics.map((metric) => option(metric, NAMES[metric] || words(metric))));

  const show = () => {
    const view = { metric: byId("metric").value, band: byId("band").value, seeds: byId("seeds").checked,
      training: byId("training").checked, hidden, colour: labelColour };
    charts.forEach((chart) => chart.show(view));
  };
  byId("legend").append(...data.labels.map((label) => legendButton(label, hidden, show)));
  for (const id of ["metric", "band", "seeds", "training"]) byId(id).addEventListener("change", show);
  theme.listeners.push(() => charts.forEach((chart) => chart.draw()));

  const notes = ["Thick lines: mean over seeds, as far as all of them got; fewer than five are drawn one by one, without a band."];
  if (thinned) notes.push(`Long curves are shown with ${thinned} points, each the mean of its neighbours.`);
  if (left_out) notes.push(`${left_out} other metrics were left out to keep the page small.`);
  byId("curves-note").textContent = notes.join(" ");
  show();
}

function legendButton(label, hidden, show) {
  const seeds = new Set(data.curves.runs.filter((run) => run.label === label).map((run) => run.seed)).size;
  const dot = make("i");
  dot.style.background = labelColour(label);
  const count = make("small", { textContent: `${seeds} seed${seeds === 1 ? "" : "s"}` });
  const button = make("button", { type: "button" }, dot, label, count);
  button.setAttribute("aria-pressed", "true");
  button.addEventListener("click", () => {
    const shown = hidden.has(label);
    shown ? hidden.delete(label) : hidden.add(label);
    button.setAttribute("aria-pressed", String(shown));
    show();
  });
  return button;
}
