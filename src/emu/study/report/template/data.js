// The page's data: arrays come as base64 text (packing.py) and are decoded when first needed.

const data = JSON.parse(document.getElementById("data").textContent);
const KINDS = { f4: Float32Array, u1: Uint8Array, u2: Uint16Array, u4: Uint32Array };
const decoded = new WeakMap();

function unpack(record) {
  if (!record) return null;
  if (!decoded.has(record)) decoded.set(record, decode(record));
  return decoded.get(record);
}

function decode(record) {
  const text = atob(record.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  if (record.type !== "q2") return new KINDS[record.type](bytes.buffer);
  const scale = (record.high - record.low) / 65535;
  return Float64Array.from(new Uint16Array(bytes.buffer), (step) => record.low + step * scale);
}

const byId = (id) => document.getElementById(id);

// An element with properties and children: make("p", { className: "note" }, "text", other)
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

function option(value, text) {
  return make("option", { value, textContent: text });
}

const words = (name) => name.replaceAll("_", " ");

function number(value) {
  if (!Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  if (size >= 1000) return Math.round(value).toLocaleString("en");
  return String(Number(value.toFixed(size >= 100 ? 1 : 3)));
}

function steps(value) {
  if (value >= 1e6) return `${Number((value / 1e6).toFixed(2))}M`;
  if (value >= 1e3) return `${Number((value / 1e3).toFixed(1))}K`;
  return String(Math.round(value));
}
