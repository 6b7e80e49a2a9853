// One panel of learning curves on a canvas: means with bands, single seeds, and a cross-hair with values.

// Runs of one label on common steps, those of all of them, as far as all got; and each run's own points.
function grouped(runs, metric) {
  const own = runs
    .filter((run) => run.series[metric])
    .map((run) => ({ seed: run.seed, x: unpack(data.curves.grids[run.series[metric].grid]), y: unpack(run.series[metric]) }))
    .filter((curve) => curve.x.length);
  if (!own.length) return null;
  const end = Math.min(...own.map((curve) => curve.x[curve.x.length - 1]));
  const grid = [...new Set(own.flatMap((curve) => [...curve.x]))].filter((x) => x <= end).sort((a, b) => a - b);
  const columns = own.map((curve) => interpolated(curve, grid));
  const at = (reduce) => grid.map((_, i) => reduce(columns.map((column) => column[i])));
  const mean = at((values) => values.reduce((a, b) => a + b, 0) / values.length);
  const deviation = grid.map((_, i) => spread(columns.map((column) => column[i]), mean[i]));
  return { own, grid, columns, mean, deviation, low: at((v) => Math.min(...v)), high: at((v) => Math.max(...v)) };
}

const RESAMPLES = 500;

// The 95 % interval of the mean at every step: seeds drawn again with replacement, whole curves at a time. The draws
// are those of a fixed generator, so that the same page always shows the same band.
function intervalOf({ columns, grid }) {
  let state = 1;
  const draw = (count) => ((state = (Math.imul(state, 1664525) + 1013904223) >>> 0) / 2 ** 32 * count) | 0;
  const draws = Array.from({ length: RESAMPLES }, () => columns.map(() => columns[draw(columns.length)]));
  const ends = [0.025, 0.975].map((share) => Math.round(share * (RESAMPLES - 1)));
  const found = grid.map((_, i) => {
    const means = draws.map((drawn) => drawn.reduce((sum, column) => sum + column[i], 0) / drawn.length);
    means.sort((a, b) => a - b);
    return ends.map((end) => means[end]);
  });
  return { low: found.map(([low]) => low), high: found.map(([, high]) => high) };
}

// Of a sample: n - 1; 0 for a single seed.
function spread(values, mean) {
  if (values.length < 2) return 0;
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (values.length - 1));
}

function interpolated({ x, y }, grid) {
  let k = 0;
  return grid.map((at) => {
    while (k < x.length - 1 && x[k + 1] <= at) k++;
    if (at <= x[0]) return y[0];
    if (k === x.length - 1) return y[k];
    return y[k] + ((at - x[k]) / (x[k + 1] - x[k])) * (y[k + 1] - y[k]);
  });
}

const ENOUGH_SEEDS = 5; // as in stats.py: fewer are drawn one by one
const fewSeeds = (group) => group.own.length > 1 && group.own.length < ENOUGH_SEEDS;
const isShare = (metric) => metric.endsWith("rate") || metric.includes("share");

// Around the mean, within what the metric can be; nothing around fewer than five seeds.
function bandOf(group, kind, metric) {
  if (kind === "none" || group.own.length < ENOUGH_SEEDS) return null;
  if (kind === "range") return { low: group.low, high: group.high };
  if (kind === "interval") return (group.interval ??= intervalOf(group));
  const [least, most] = isShare(metric) ? [0, 1] : [-Infinity, Infinity];
  return {
    low: group.mean.map((m, i) => Math.max(m - group.deviation[i], least)),
    high: group.mean.map((m, i) => Math.min(m + group.deviation[i], most)),
  };
}

class Chart {
  constructor(panel, runs) {
    this.panel = panel;
    this.runs = runs;
    this.canvas = make("canvas");
    this.tip = make("div", { className: "tip", hidden: true });
    this.element = make("article", { className: "panel" }, make("h3", { textContent: panel }), this.canvas, this.tip);
    this.canvas.setAttribute("role", "img");
    this.canvas.setAttribute("aria-label", `learning curves on ${panel}`);
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => this.leave());
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  // view: { metric, band, seeds, training, hidden: Set of labels, colour: label -> colour }
  show(view) {
    this.view = view;
    this.metric = view.metric === "score" ? data.scores[this.panel] : view.metric;
    this.groups = new Map();
    const beside = view.training && this.metric.startsWith("test_") ? this.metric.replace("test_", "train_") : "";
    for (const label of data.labels) {
      const runs = this.runs.filter((run) => run.label === label);
      const group = grouped(runs, this.metric);
      if (group) this.groups.set(label, { ...group, training: beside && grouped(runs, beside) });
    }
    this.draw();
  }

  visible() {
    return [...this.groups].filter(([label]) => !this.view.hidden.has(label));
  }

  limits() {
    let [right, low, high] = [1, Infinity, -Infinity];
    for (const [, group] of this.visible()) {
      const band = bandOf(group, this.view.band, this.metric) || { low: group.mean, high: group.mean };
      const seeds = this.view.seeds || fewSeeds(group) ? group.own.map((curve) => curve.y) : [];
      const lists = [band.low, band.high, ...seeds, ...(group.training ? [group.training.mean] : [])];
      for (const list of lists) {
        for (const value of list) {
          if (!Number.isFinite(value)) continue;
          low = Math.min(low, value);
          high = Math.max(high, value);
        }
      }
      const drawn = seeds.length || group.own.length === 1 ? group.own.map((curve) => curve.x) : [group.grid];
      right = Math.max(right, ...drawn.map((x) => x[x.length - 1]));
    }
    if (this.metric.endsWith("win_rate")) return { right, low: 0, high: 1 };
    if (low > high) return { right, low: 0, high: 1 };
    const margin = (high - low) * 0.05 || Math.abs(high) * 0.1 || 1;
    return { right, low: low - margin, high: high + margin };
  }

  draw() {
    if (!this.view) return;
    const { pen, width, height } = sharp(this.canvas);
    const { right, low, high } = this.limits();
    const box = { left: 52, top: 10, right: width - 20, bottom: height - 28 };
    this.x = scaled(box.left, box.right, 0, right);
    this.y = scaled(box.bottom, box.top, low, high);
    frame(pen, box, this.x, this.y, ticks(0, right, Math.max(2, width / 110)), ticks(low, high, 5));
    pen.save();
    pen.beginPath();
    pen.rect(box.left, box.top - 3, box.right - box.left + 3, box.bottom - box.top + 6);
    pen.clip();
    for (const [label, group] of this.visible()) this.curve(pen, group, this.view.colour(label));
    pen.restore();
    if (this.hover !== undefined) this.crosshair(pen, box);
  }

  curve(pen, group, colour) {
    const place = (list, grid = group.grid) => grid.map((step, i) => [this.x(step), this.y(list[i])]);
    pen.strokeStyle = pen.fillStyle = colour;
    pen.lineJoin = "round";
    const band = bandOf(group, this.view.band, this.metric);
    if (band) {
      pen.globalAlpha = 0.16;
      pen.beginPath();
      for (const [x, y] of [...place(band.low), ...place(band.high).reverse()]) pen.lineTo(x, y);
      pen.fill();
    }
    if (this.view.seeds || fewSeeds(group)) {
      pen.globalAlpha = 0.45;
      pen.lineWidth = 1;
      for (const curve of group.own) line(pen, [...curve.x].map((step, i) => [this.x(step), this.y(curve.y[i])]));
    }
    pen.globalAlpha = 1;
    if (group.training) {
      pen.lineWidth = 1.4;
      pen.setLineDash([2, 3]);
      line(pen, place(group.training.mean, group.training.grid));
      pen.setLineDash([]);
    }
    pen.lineWidth = group.own.length > 1 ? 2.2 : 1; // one seed is no mean
    line(pen, place(group.mean));
  }

  point(event) {
    const edge = this.canvas.getBoundingClientRect();
    const at = event.clientX - edge.left;
    const all = this.visible().flatMap(([, group]) => group.grid);
    if (!all.length) return this.leave();
    this.hover = all.reduce((best, step) => (Math.abs(this.x(step) - at) < Math.abs(this.x(best) - at) ? step : best));
    this.draw();
    this.tell(edge);
  }

  leave() {
    this.hover = undefined;
    this.tip.hidden = true;
    this.draw();
  }

  crosshair(pen, box) {
    pen.strokeStyle = theme.colour("soft");
    pen.lineWidth = 1;
    line(pen, [[this.x(this.hover), box.top], [this.x(this.hover), box.bottom]]);
  }

  tell(edge) {
    const rows = this.visible()
      .filter(([, group]) => this.hover <= group.grid[group.grid.length - 1])
      .map(([label, group]) => ({ label, value: interpolated({ x: group.grid, y: group.mean }, [this.hover])[0],
        off: interpolated({ x: group.grid, y: group.deviation }, [this.hover])[0], seeds: group.own.length }))
      .sort((a, b) => b.value - a.value)
      .map(({ label, value, off, seeds }) => {
        const dot = make("i");
        dot.style.background = this.view.colour(label);
        return make("div", {}, dot, `${label}: ${number(value)}${seeds >= ENOUGH_SEEDS ? ` ± ${number(off)}` : ""} (${seeds} seed${seeds === 1 ? "" : "s"})`);
      });
    this.tip.replaceChildren(make("div", { className: "note", textContent: `step ${steps(this.hover)}` }), ...rows);
    this.tip.hidden = false;
    const left = this.canvas.offsetLeft + this.x(this.hover);
    const beyond = left + this.tip.offsetWidth + 14 > this.element.clientWidth;
    this.tip.style.left = `${Math.max(0, beyond ? left - this.tip.offsetWidth - 14 : left + 14)}px`;
    this.tip.style.top = `${this.canvas.offsetTop + 14}px`;
  }
}
