// The map of the memory: points and a path on a canvas that can be moved, zoomed and clicked, by mouse or by fingers.

const REACH = 14; // pixels within which a click finds something
const PAD = 26;

class Scatter {
  constructor(canvas, picked) {
    Object.assign(this, { canvas, picked, pointers: new Map(), moved: 0 });
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.drag(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", (event) => this.pointers.delete(event.pointerId));
    canvas.addEventListener("dblclick", () => this.whole());
    canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
    this.view = { zoom: 1, x: 0, y: 0 }; // x, y: how far the map is moved, in pixels
  }

  // scene: { places, count, colour(i), visible(i), path or null, chosen: {kind, index} or null, bounds, axes }
  show(scene) {
    this.scene = scene;
    this.draw();
  }

  whole() {
    this.view = { zoom: 1, x: 0, y: 0 };
    this.draw();
  }

  zoom(factor, at = [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2]) {
    const zoom = Math.min(Math.max(this.view.zoom * factor, 0.5), 200);
    const change = zoom / this.view.zoom;
    const middle = [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2];
    this.view.x = at[0] - middle[0] - (at[0] - middle[0] - this.view.x) * change;
    this.view.y = at[1] - middle[1] - (at[1] - middle[1] - this.view.y) * change;
    this.view.zoom = zoom;
    this.draw();
  }

  // Where a place of the map is on the canvas.
  project() {
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight];
    const { low, high } = this.scene.bounds;
    const size = [0, 1].map((k) => high[k] - low[k] || 1);
    const scale = [(width - 2 * PAD) / size[0], (height - 2 * PAD) / size[1]].map((s) => s * this.view.zoom);
    const middle = [0, 1].map((k) => (low[k] + high[k]) / 2);
    return (x, y) => [
      width / 2 + this.view.x + (x - middle[0]) * scale[0],
      height / 2 + this.view.y - (y - middle[1]) * scale[1],
    ];
  }

  draw() {
    if (!this.scene) return;
    const { pen, width, height } = sharp(this.canvas);
    const place = this.project();
    const { places, count, path, chosen } = this.scene;
    const radius = Math.min(6, 2.6 * Math.sqrt(Math.max(this.view.zoom, 1) ** 0.5));
    pen.globalAlpha = path ? 0.6 : 0.85;
    for (let i = 0; i < count; i++) {
      if (!this.scene.visible(i)) continue;
      const [x, y] = place(places[2 * i], places[2 * i + 1]);
      if (x < -9 || y < -9 || x > width + 9 || y > height + 9) continue;
      pen.fillStyle = this.scene.colour(i);
      pen.beginPath();
      pen.arc(x, y, radius, 0, 7);
      pen.fill();
    }
    pen.globalAlpha = 1;
    if (path) this.path(pen, place, path);
    if (chosen) this.ring(pen, this.placeOf(chosen));
    this.names(pen, width, height);
  }

  path(pen, place, path) {
    const points = Array.from({ length: path.count }, (_, i) => place(path.places[2 * i], path.places[2 * i + 1]));
    pen.lineJoin = "round";
    for (const [colour, thickness] of [[theme.colour("card"), 5], [theme.colour("ink"), 2]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = thickness;
      line(pen, points);
    }
    points.forEach(([x, y], i) => {
      pen.beginPath();
      if (path.desirable[i]) star(pen, x, y, 9);
      else pen.arc(x, y, 4, 0, 7);
      pen.fillStyle = path.desirable[i] ? DESIRABLE : path.found[i] ? theme.colour("ink") : theme.colour("card");
      pen.strokeStyle = path.desirable[i] ? theme.colour("card") : theme.colour("ink");
      pen.lineWidth = path.desirable[i] ? 1.5 : 1.5;
      pen.fill();
      pen.stroke();
    });
    pen.fillStyle = theme.colour("ink");
    pen.font = "600 12px system-ui, sans-serif";
    pen.textAlign = "left";
    pen.textBaseline = "bottom";
    pen.fillText("start", points[0][0] + 8, points[0][1] - 6);
  }

  ring(pen, [x, y]) {
    for (const [colour, thickness] of [[theme.colour("card"), 5], [theme.colour("accent"), 2.5]]) {
      pen.strokeStyle = colour;
      pen.lineWidth = thickness;
      pen.beginPath();
      pen.arc(x, y, 11, 0, 7);
      pen.stroke();
    }
  }

  names(pen, width, height) {
    pen.fillStyle = theme.colour("soft");
    pen.font = "12px system-ui, sans-serif";
    pen.textAlign = "center";
    pen.textBaseline = "bottom";
    pen.fillText(this.scene.axes[0], width / 2, height - 2);
    pen.save();
    pen.translate(3, height / 2);
    pen.rotate(-Math.PI / 2);
    pen.textBaseline = "top";
    pen.fillText(this.scene.axes[1], 0, 0);
    pen.restore();
  }

  placeOf({ kind, index }) {
    const places = kind === "path" ? this.scene.path.places : this.scene.places;
    return this.project()(places[2 * index], places[2 * index + 1]);
  }

  // What lies under a point of the canvas: states of the path first, for they are drawn on top.
  find(at) {
    const nearest = (kind, places, count, allowed, reach) => {
      let best = null;
      for (let index = 0; index < count; index++) {
        if (!allowed(index)) continue;
        const [x, y] = this.placeOf({ kind, index });
        const gap = Math.hypot(x - at[0], y - at[1]);
        if (gap < (best ? best.gap : reach)) best = { kind, index, gap };
      }
      return best;
    };
    const { path, places, count, visible } = this.scene;
    const state = path && nearest("path", path.places, path.count, () => true, 9);
    const found = state || nearest("memory", places, count, visible, REACH);
    return found && { kind: found.kind, index: found.index };
  }

  // Mouse, fingers, keys

  at(event) {
    const edge = this.canvas.getBoundingClientRect();
    return [event.clientX - edge.left, event.clientY - edge.top];
  }

  press(event) {
    this.pointers.set(event.pointerId, this.at(event));
    this.canvas.setPointerCapture(event.pointerId);
    if (this.pointers.size === 1) this.moved = 0;
  }

  drag(event) {
    if (!this.pointers.has(event.pointerId)) return;
    const before = [...this.pointers.values()];
    const [was, now] = [this.pointers.get(event.pointerId), this.at(event)];
    this.pointers.set(event.pointerId, now);
    const fingers = before.length;
    this.moved += Math.hypot(now[0] - was[0], now[1] - was[1]);
    this.view.x += (now[0] - was[0]) / fingers;
    this.view.y += (now[1] - was[1]) / fingers;
    if (fingers === 2) {
      const width = ([a, b]) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
      const after = [...this.pointers.values()];
      this.zoom(width(after) / width(before), [0, 1].map((k) => (after[0][k] + after[1][k]) / 2));
    }
    this.draw();
  }

  release(event) {
    if (this.pointers.delete(event.pointerId) && !this.pointers.size && this.moved < 5) this.picked(this.find(this.at(event)));
  }

  wheel(event) {
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY / 400), this.at(event));
  }

  key(event) {
    const moves = { ArrowLeft: [40, 0], ArrowRight: [-40, 0], ArrowUp: [0, 40], ArrowDown: [0, -40] };
    const zooms = { "+": 1.4, "=": 1.4, "-": 1 / 1.4 };
    if (zooms[event.key]) this.zoom(zooms[event.key]);
    else if (event.key === "0") this.whole();
    else if (moves[event.key]) {
      this.view.x += moves[event.key][0];
      this.view.y += moves[event.key][1];
      this.draw();
    } else return;
    event.preventDefault();
  }
}

function star(pen, x, y, size) {
  for (let k = 0; k < 10; k++) {
    const [angle, far] = [(k * Math.PI) / 5 - Math.PI / 2, k % 2 ? size * 0.45 : size];
    pen.lineTo(x + far * Math.cos(angle), y + far * Math.sin(angle));
  }
  pen.closePath();
}
