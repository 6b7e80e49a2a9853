// A state drawn from its sketch: the scene of the environment (shapes, then figures) and four bytes a figure.

function drawSketch(canvas, scene, bytes, index) {
  canvas.style.aspectRatio = `${scene.width} / ${scene.height}`;
  const { pen, width } = sharp(canvas);
  const size = [scene.width, scene.height, 1, 1];
  const living = scene.figures
    .map((figure, i) => {
      const start = (index * scene.figures.length + i) * 4;
      const [x, y, life, shield] = size.map((scale, k) => (bytes[start + k] / 255) * scale);
      return { figure, x, y, life, shield };
    })
    .filter(({ life }) => life > 0);
  const view = viewOf(scene, living);
  pen.scale(width / view.width, width / view.width);
  pen.translate(-view.x, -view.y);
  pen.fillStyle = scene.background;
  pen.fillRect(view.x, view.y, view.width, view.width);
  scene.shapes.forEach((shape) => drawShape(pen, shape));
  for (const { figure, x, y, life, shield } of living) drawFigure(pen, figure, x, y, life, shield);
}

// The part of the scene to show: where the figures are if it has a `closest` width to go to, else all of it.
function viewOf(scene, living) {
  if (!scene.closest || !living.length) return { x: 0, y: 0, width: scene.width };
  const [xs, ys] = [living.map((f) => f.x), living.map((f) => f.y)];
  const ends = (list) => [Math.min(...list) - 1.5, Math.max(...list) + 1.5];
  const [[left, right], [top, bottom]] = [ends(xs), ends(ys)];
  const shape = scene.height / scene.width;
  const width = Math.min(scene.width, Math.max(scene.closest, right - left, (bottom - top) / shape));
  const within = (middle, length, end) => Math.min(Math.max(middle - length / 2, 0), end - length);
  return { x: within((left + right) / 2, width, scene.width), y: within((top + bottom) / 2, width * shape, scene.height), width };
}

function drawShape(pen, shape) {
  pen.beginPath();
  if (shape.box) {
    const [x0, y0, x1, y1] = shape.box;
    pen.rect(x0, y0, x1 - x0, y1 - y0);
  } else {
    for (const [x, y] of shape.polygon || shape.line) pen.lineTo(x, y);
    if (shape.polygon) pen.closePath();
  }
  if (shape.fill) {
    pen.fillStyle = shape.fill;
    pen.fill();
  }
  if (shape.stroke) {
    pen.strokeStyle = shape.stroke;
    pen.lineWidth = shape.thickness;
    pen.stroke();
  }
}

function drawFigure(pen, figure, x, y, life, shield) {
  const { size, corners, turn } = figure;
  pen.beginPath();
  if (!corners) pen.arc(x, y, size, 0, 7);
  for (let k = 0; k < corners; k++) {
    const angle = turn + (2 * Math.PI * k) / corners;
    pen.lineTo(x + size * Math.cos(angle), y - size * Math.sin(angle));
  }
  pen.closePath();
  pen.fillStyle = figure.fill;
  pen.strokeStyle = figure.stroke;
  pen.lineWidth = 0.08;
  pen.fill();
  pen.stroke();
  if (figure.letter) {
    pen.fillStyle = "#f0f4fa";
    pen.font = `${size * 1.1}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    pen.fillText(figure.letter, x, y);
  }
  if (!figure.rings) return;
  arc(pen, x, y, size + 0.14, life, life > 0.6 ? "#6edc78" : life > 0.3 ? "#fabe50" : "#f5554b");
  if (shield > 0) arc(pen, x, y, size + 0.28, shield, "#78dcff");
}

function arc(pen, x, y, radius, share, colour) {
  pen.beginPath();
  pen.arc(x, y, radius, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * share);
  pen.strokeStyle = colour;
  pen.lineWidth = 0.11;
  pen.stroke();
}
