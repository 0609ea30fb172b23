// Colors and shapes that every eye can tell apart, on light and on dark paper, and the legend.

const VIRIDIS = [
  [68, 1, 84], [72, 36, 117], [65, 68, 135], [53, 95, 141], [42, 120, 142], [33, 145, 140],
  [34, 168, 132], [68, 191, 112], [122, 209, 81], [189, 223, 38], [253, 231, 37],
];
// The palette of Okabe and Ito; its black is the ink of the page.
const OKABE_ITO = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", null, "#B8A900"];
const SHAPES = ["circle", "square", "triangle", "diamond", "cross"];
// 8 colors and 5 shapes make 40 classes; the rest are one more.
const MOST_CLASSES = 40;
const MOST_WHOLE = 12;

const night = window.matchMedia("(prefers-color-scheme: dark)");
let isPrinting = false;

const isDark = () => night.matches && !isPrinting;
const ink = () => (isDark() ? "#e8eaed" : "#1b1f24");
const missing = () => (isDark() ? "#5d646d" : "#b4bac1");

// The ends that have no contrast to the paper are left out.
function ramp(share) {
  const [low, high] = isDark() ? [0.25, 1] : [0, 0.9];
  const place = (low + (high - low) * Math.min(1, Math.max(0, share))) * (VIRIDIS.length - 1);
  const k = Math.min(VIRIDIS.length - 2, Math.floor(place));
  const mixed = VIRIDIS[k].map((part, i) => Math.round(part + (VIRIDIS[k + 1][i] - part) * (place - k)));
  return `rgb(${mixed.join(" ")})`;
}

const classColor = (k) => (k >= MOST_CLASSES ? missing() : OKABE_ITO[k % OKABE_ITO.length] || ink());
const classShape = (k) => (k >= MOST_CLASSES ? "circle" : SHAPES[k % SHAPES.length]);

function quantile(sorted, share) {
  return sorted[Math.round(share * (sorted.length - 1))];
}

// How a quantity is colored at a scale: a look for every point, and what the legend says.
function palette(quantity, scale) {
  const values = quantity.at(scale);
  if (quantity.names) {
    return { values, isClasses: true, look: (value) => ({ color: classColor(value), shape: classShape(value) }) };
  }
  const known = values.filter((v) => !Number.isNaN(v)).sort();
  if (!known.length) return { values, low: 0, high: 1, look: () => ({ color: missing(), shape: "circle" }) };
  const isWhole = Boolean(quantity.isWhole);
  const low = isWhole ? known[0] : quantile(known, 0.01);
  const high = isWhole ? known[known.length - 1] : quantile(known, 0.99);
  const span = high - low || 1;
  const look = (value) => ({ color: ramp((value - low) / span), shape: "circle" });
  return { values, low, high, isWhole, isCut: known[0] < low || known[known.length - 1] > high, look };
}

const SVG = "http://www.w3.org/2000/svg";

function swatch(color, shape) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", "-7 -7 14 14");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  const outlines = {
    circle: "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0",
    square: "M-4.5 -4.5h9v9h-9z",
    triangle: "M0 -5.5l5.5 9.5h-11z",
    diamond: "M0 -6l5 6l-5 6l-5 -6z",
    cross: "M-5 -2h3v-3h4v3h3v4h-3v3h-4v-3h-3z",
  };
  path.setAttribute("d", outlines[shape]);
  path.setAttribute("fill", color);
  svg.append(path);
  return svg;
}

function drawLegend(target, quantity, colors) {
  target.replaceChildren();
  const counts = new Map();
  let unknown = 0;
  for (const value of colors.values) {
    if (Number.isNaN(value)) unknown += 1;
    else counts.set(value, (counts.get(value) || 0) + 1);
  }
  const list = document.createElement("ul");
  const item = (color, shape, text) => {
    const line = document.createElement("li");
    line.append(swatch(color, shape), text);
    list.append(line);
  };
  const isListed = colors.isClasses || (colors.isWhole && colors.high - colors.low < MOST_WHOLE);
  if (isListed) {
    const order = [...counts.keys()].sort((a, b) => a - b);
    for (const value of order.filter((v) => !colors.isClasses || v < MOST_CLASSES)) {
      const { color, shape } = colors.look(value);
      item(color, shape, `${written(value, quantity)} (${counts.get(value).toLocaleString("en")})`);
    }
    const others = order.filter((v) => colors.isClasses && v >= MOST_CLASSES);
    const total = others.reduce((sum, value) => sum + counts.get(value), 0);
    if (total) item(missing(), "circle", `${others.length} other classes (${total.toLocaleString("en")})`);
  } else {
    const bar = document.createElement("div");
    bar.className = "ramp";
    bar.style.background = `linear-gradient(to right, ${[0, 0.25, 0.5, 0.75, 1].map(ramp).join(", ")})`;
    const ends = document.createElement("div");
    ends.className = "ends";
    const texts = [colors.low, (colors.low + colors.high) / 2, colors.high].map((v) => String(Number(v.toPrecision(3))));
    if (colors.isCut) [texts[0], texts[2]] = [`≤ ${texts[0]}`, `≥ ${texts[2]}`];
    for (const text of texts) {
      const end = document.createElement("span");
      end.textContent = text;
      ends.append(end);
    }
    target.append(bar, ends);
  }
  if (unknown) item(missing(), "circle", `not measured or missing (${unknown.toLocaleString("en")})`);
  target.append(list);
}
