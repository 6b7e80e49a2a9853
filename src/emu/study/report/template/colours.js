// Colours of curves and of memories; all readable on light and on dark ground.

const LABELS = ["#3b7fd0", "#d4604a", "#3f9e68", "#9a68bd", "#c49a1a", "#2aa7a0", "#d06a9c", "#8a8f98"];
const ON_DARK = ["#6a5acd", "#3f74b8", "#277f8e", "#1fa187", "#4ac16d", "#a0da39", "#fde725"];
const ON_LIGHT = ["#440154", "#46327e", "#365c8d", "#277f8e", "#1fa187", "#4ac16d", "#9fc52c", "#d9b310"];
const DESIRABLE = "#e0a526";
const PLAIN = "#7d8797";

function labelColour(label) {
  return LABELS[data.labels.indexOf(label) % LABELS.length];
}

function mixed(low, high, share) {
  const parts = [1, 3, 5].map((k) => {
    const [a, b] = [low, high].map((colour) => parseInt(colour.slice(k, k + 2), 16));
    return Math.round(a + (b - a) * share);
  });
  return `rgb(${parts.join(",")})`;
}

const stops = () => (theme.name() === "dark" ? ON_DARK : ON_LIGHT);

// A number in [0, 1] -> a colour.
function warmth(share) {
  const list = stops();
  const at = Math.min(Math.max(share, 0), 1) * (list.length - 1);
  const k = Math.min(Math.floor(at), list.length - 2);
  return mixed(list[k], list[k + 1], at - k);
}

// How memories are coloured by one of their values between two limits: of(value) is a colour, legend() its key.
function colouring(kind, low, high) {
  if (kind === "desirable") {
    return {
      of: (value) => (value ? DESIRABLE : PLAIN),
      legend: () => [dot(DESIRABLE), "desirable", dot(PLAIN), "not desirable"],
    };
  }
  const logarithmic = kind === "visits" && high > 10 * Math.max(low, 1);
  const scale = logarithmic ? (v) => Math.log(Math.max(v, 1)) : (v) => v;
  const share = scaled(0, 1, scale(low), scale(high));
  return {
    of: (value) => warmth(share(scale(value))),
    legend: () => [number(low), bar(), number(high), logarithmic ? "(logarithmic)" : ""],
  };
}

function dot(colour) {
  const element = make("i");
  element.style.background = colour;
  return element;
}

function bar() {
  const element = make("span", { className: "bar" });
  element.style.background = `linear-gradient(90deg, ${stops().join(",")})`;
  return element;
}
