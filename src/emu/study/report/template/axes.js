// What every drawing needs: a sharp canvas, round numbers for ticks, and a frame with axes.

function sharp(canvas) {
  const { width, height } = canvas.getBoundingClientRect();
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height };
}

// Round numbers inside [low, high], about `count` of them.
function ticks(low, high, count) {
  const rough = (high - low) / count;
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((k) => k * power).find((k) => k >= rough);
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) found.push(k * step);
  return found;
}

const scaled = (from, to, low, high) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// Grid lines and numbers. `box` is where curves go: { left, top, right, bottom }.
function frame(pen, box, x, y, xTicks, yTicks) {
  pen.font = "12px system-ui, sans-serif";
  pen.fillStyle = theme.colour("soft");
  pen.strokeStyle = theme.colour("line");
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const value of yTicks) {
    const at = Math.round(y(value)) + 0.5;
    line(pen, [[box.left, at], [box.right, at]]);
    pen.fillText(number(value), box.left - 8, at);
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const value of xTicks) pen.fillText(steps(value), x(value), box.bottom + 8);
}

function line(pen, points) {
  pen.beginPath();
  for (const [x, y] of points) pen.lineTo(x, y);
  pen.stroke();
}
