// Reads what the page holds: JSON, with the numbers of all points as base64 of little-endian arrays.

const packed = JSON.parse(document.getElementById("data").textContent);

function bytes(text) {
  const raw = atob(text);
  const array = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) array[i] = raw.charCodeAt(i);
  return array;
}

const array = (text, Kind) => new Kind(bytes(text).buffer);

// Numbers that were rounded to 65,534 steps between two ends; the last step is a missing number.
function range(part) {
  const steps = array(part.data, Uint16Array);
  const size = (part.high - part.low) / 65534;
  return Float32Array.from(steps, (step) => (step === 65535 ? NaN : part.low + step * size));
}

// What is known at some of the points only, as a number or NaN for every point.
function spread(part) {
  const points = array(part.points, Uint32Array);
  const known = array(part.data, Float32Array);
  const values = new Float32Array(packed.n).fill(NaN);
  points.forEach((point, k) => { values[point] = known[k]; });
  return values;
}

const n = packed.n;
const rows = array(packed.rows, Uint32Array);
const xs = range(packed.x);
const ys = range(packed.y);
const dimensions = array(packed.dimension, Uint8Array);
const traces = range(packed.trace);

// Every quantity that points can be colored by: a name, values at a scale, and classes where it has them.
const quantities = [
  {
    name: "local dimension at σ",
    isWhole: true,
    at: (scale) => Float32Array.from(dimensions.subarray(scale * n, (scale + 1) * n), (d) => (d === 255 ? NaN : d)),
  },
  { name: "trace at σ", at: (scale) => traces.subarray(scale * n, (scale + 1) * n) },
  ...packed.columns.map((column) => ({ name: column.name, names: column.names, isId: column.isId, values: array(column.data, Float32Array) })),
  ...packed.measured.map((part) => ({ name: part.name, names: part.names, values: spread(part), isPartial: true })),
];
for (const quantity of quantities) quantity.at = quantity.at || (() => quantity.values);

const arrowPoints = array(packed.arrows.points, Uint32Array);
const arrowParts = array(packed.arrows.data, Int8Array);

function written(value, quantity) {
  if (Number.isNaN(value)) return quantity.isPartial ? "not measured" : "missing";
  if (quantity.names) return quantity.names[value];
  if (Number.isInteger(value) && Math.abs(value) < 1e7) return String(value);
  return String(Number(value.toPrecision(4)));
}
