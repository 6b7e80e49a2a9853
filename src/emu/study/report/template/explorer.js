// The memory explorer: which run, which moment of its training, which memories, in which colours; one of them chosen.

const NOTCHES = 200; // of the sliders over returns

class Explorer {
  constructor() {
    this.scatter = new Scatter(byId("scatter"), (chosen) => this.choose(chosen));
    byId("memory-run").append(...data.memories.runs.map((run, i) => option(i, `${run.label} · ${run.panel} · seed ${run.seed}`)));
    this.listen();
    this.openRun();
  }

  listen() {
    const on = (ids, kind, act) => ids.forEach((id) => byId(id).addEventListener(kind, act));
    on(["memory-run"], "change", () => this.openRun());
    on(["moment"], "input", () => this.openShot());
    on(["colour", "projection"], "change", () => this.show());
    on(["filter-desirable", "filter-low", "filter-high", "filter-visits", "filter-time"], "input", () => this.show());
    on(["filter-reset"], "click", () => this.resetFilters());
    on(["episode"], "change", () => this.choose(null));
    on(["episode-step"], "input", () => this.walk());
    on(["play"], "click", () => this.play());
    on(["zoom-in"], "click", () => this.scatter.zoom(1.5));
    on(["zoom-out"], "click", () => this.scatter.zoom(1 / 1.5));
    on(["zoom-reset"], "click", () => this.scatter.whole());
    theme.listeners.push(() => this.show());
  }

  openRun() {
    this.run = data.memories.runs[Number(byId("memory-run").value)];
    const names = Object.keys(this.run.axes);
    byId("projection").replaceChildren(...names.map((name) => option(name, name)));
    byId("projection-label").hidden = names.length < 2;
    byId("moment").max = this.run.snapshots.length - 1;
    byId("moment").value = this.run.snapshots.length - 1;
    byId("play").disabled = byId("moment").disabled = this.run.snapshots.length < 2;
    this.limits = {};
    for (const name of ["best_return", "visits", "time"]) this.limits[name] = this.over(name);
    this.setFilters();
    this.scatter.whole();
    this.openShot();
  }

  // Lowest and highest value over all snapshots, so that a colour means the same at any time.
  over(name) {
    let [low, high] = [Infinity, -Infinity];
    for (const shot of this.run.snapshots) {
      for (const value of unpack(shot.memories[name])) {
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
    return { low, high };
  }

  bounds(projection) {
    const [low, high] = [[Infinity, Infinity], [-Infinity, -Infinity]];
    for (const shot of this.run.snapshots) {
      for (const table of [shot.memories, shot.episode]) {
        unpack(table.places[projection]).forEach((value, i) => {
          low[i % 2] = Math.min(low[i % 2], value);
          high[i % 2] = Math.max(high[i % 2], value);
        });
      }
    }
    return { low, high };
  }

  setFilters() {
    for (const id of ["filter-low", "filter-high"]) Object.assign(byId(id), { min: 0, max: NOTCHES, step: 1 });
    Object.assign(byId("filter-time"), { max: this.limits.time.high, step: 1 });
    this.resetFilters(false);
  }

  resetFilters(show = true) {
    byId("filter-desirable").value = "all";
    byId("filter-low").value = 0;
    byId("filter-high").value = NOTCHES;
    byId("filter-visits").value = 1;
    byId("filter-time").value = this.limits.time.high;
    if (show) this.show();
  }

  // A function that says whether memory i passes all filters.
  passes() {
    const { memories } = this.shot;
    const [returns, wanted, visits, time] = ["best_return", "desirable", "visits", "time"].map((n) => unpack(memories[n]));
    const [low, high] = [this.notch("filter-low"), this.notch("filter-high")];
    const [fewest, latest] = ["visits", "time"].map((name) => Number(byId(`filter-${name}`).value));
    const kind = byId("filter-desirable").value;
    byId("filter-low-text").textContent = number(low);
    byId("filter-high-text").textContent = number(high);
    byId("filter-time-text").textContent = latest;
    return (i) =>
      returns[i] >= low && returns[i] <= high && visits[i] >= fewest && time[i] <= latest &&
      (kind === "all" || (kind === "yes") === Boolean(wanted[i]));
  }

  // The return that a slider stands for; at its ends exactly the lowest and the highest.
  notch(id) {
    const { low, high } = this.limits.best_return;
    const at = Number(byId(id).value);
    return at === NOTCHES ? high : low + ((high - low) * at) / NOTCHES;
  }

  openShot() {
    this.shot = this.run.snapshots[Number(byId("moment").value)];
    this.chosen = null;
    const last = this.shot.episode.count - 1;
    Object.assign(byId("episode-step"), { max: last, value: 0 });
    this.show();
  }

  choose(chosen) {
    this.chosen = chosen;
    if (chosen && chosen.kind === "path") byId("episode-step").value = chosen.index;
    this.show();
  }

  walk() {
    byId("episode").checked = true;
    this.choose({ kind: "path", index: Number(byId("episode-step").value) });
  }

  play() {
    const moment = byId("moment");
    if (this.timer) return this.stop();
    if (moment.value === moment.max) moment.value = 0;
    this.openShot();
    byId("play").textContent = "❚❚";
    this.timer = setInterval(() => {
      if (moment.value === moment.max) return this.stop();
      moment.value = Number(moment.value) + 1;
      this.openShot();
    }, 700);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    byId("play").textContent = "▶";
  }

  path(projection) {
    if (!byId("episode").checked) return null;
    const { episode } = this.shot;
    return {
      count: episode.count,
      places: unpack(episode.places[projection]),
      desirable: unpack(episode.desirable),
      found: unpack(episode.found),
    };
  }

  show() {
    const { shot, run } = this;
    const [kind, projection] = [byId("colour").value, byId("projection").value];
    const values = unpack(shot.memories[kind]);
    const { low, high } = this.limits[kind] || {};
    const colours = colouring(kind, low, high);
    const visible = this.passes();
    const path = this.path(projection);
    if (this.chosen && this.chosen.kind === "memory" && !visible(this.chosen.index)) this.chosen = null;
    this.scatter.show({
      places: unpack(shot.memories.places[projection]), count: shot.count, colour: (i) => colours.of(values[i]), visible,
      path, chosen: this.chosen, bounds: this.bounds(projection), axes: run.axes[projection],
    });
    byId("scale").replaceChildren(...colours.legend());
    const left = Array.from({ length: shot.count }, (_, i) => i).filter(visible).length;
    byId("shown").textContent = `${left.toLocaleString("en")} of ${shot.count.toLocaleString("en")} sampled memories shown; the whole memory holds ${shot.size.toLocaleString("en")}.`;
    byId("moment-text").textContent = `step ${shot.step.toLocaleString("en")}`;
    byId("episode-text").textContent = `${byId("episode-step").value} of ${shot.episode.count - 1}`;
    showDetails(byId("details"), run, shot, this.chosen);
  }
}
