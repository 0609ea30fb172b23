// Draws points, arrows and paths on canvases, at the resolution of the screen.

const SMALL = 1.3;
// Pixels between lines along tangent directions.
const ROOM = 26;

function sizeOf(count) {
  return count > 4000 ? 2.1 : count > 1200 ? 2.8 : count > 300 ? 3.6 : 4.6;
}

function trace(context, shape, x, y, r) {
  if (shape === "square") context.rect(x - 0.88 * r, y - 0.88 * r, 1.76 * r, 1.76 * r);
  else if (shape === "triangle") {
    context.moveTo(x, y - 1.15 * r);
    context.lineTo(x + 1.1 * r, y + 0.8 * r);
    context.lineTo(x - 1.1 * r, y + 0.8 * r);
    context.closePath();
  } else if (shape === "diamond") {
    context.moveTo(x, y - 1.3 * r);
    context.lineTo(x + 1.1 * r, y);
    context.lineTo(x, y + 1.3 * r);
    context.lineTo(x - 1.1 * r, y);
    context.closePath();
  } else if (shape === "cross") {
    context.rect(x - 1.1 * r, y - 0.42 * r, 2.2 * r, 0.84 * r);
    context.rect(x - 0.42 * r, y - 1.1 * r, 0.84 * r, 2.2 * r);
  } else {
    context.moveTo(x + r, y);
    context.arc(x, y, r, 0, 2 * Math.PI);
  }
}

// Where points are on the screen: the same unit along both axes, with a margin, and a zoom around a center.
class View {
  constructor() {
    const span = (part) => [Math.min(...minmax(part)), Math.max(...minmax(part))];
    this.box = [span(xs), span(ys)];
    this.all();
  }

  all() {
    this.zoom = 1;
    this.center = this.box.map(([low, high]) => (low + high) / 2);
  }

  fit(width, height) {
    this.width = width;
    this.height = height;
    const [w, h] = this.box.map(([low, high]) => high - low);
    const margin = 26;
    const units = [(width - 2 * margin) / (w || 1e-9), (height - 2 * margin) / (h || 1e-9)];
    const unit = Math.min(...units);
    this.unit = (Number.isFinite(unit) && unit < 1e8 ? unit : 1) * this.zoom;
  }

  x(value) { return this.width / 2 + (value - this.center[0]) * this.unit; }
  y(value) { return this.height / 2 - (value - this.center[1]) * this.unit; }

  move(dx, dy) {
    this.center = [this.center[0] - dx / this.unit, this.center[1] + dy / this.unit];
  }
}

function minmax(values) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return [low, high];
}

function prepare(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

function drawPoints(context, view, colors) {
  const r = sizeOf(n) * Math.min(2, Math.sqrt(view.zoom)) * Math.min(1, Math.max(0.7, view.width / 700));
  const groups = new Map();
  for (let i = 0; i < n; i++) {
    const value = colors.values[i];
    const isKnown = !Number.isNaN(value);
    const { color, shape } = isKnown ? colors.look(value) : { color: missing(), shape: "circle" };
    const key = isKnown ? `${color} ${shape}` : "missing";
    if (!groups.has(key)) groups.set(key, { color, shape, isKnown, points: [] });
    groups.get(key).points.push(i);
  }
  // What is missing lies below what is known.
  const order = [...groups.values()].sort((a, b) => a.isKnown - b.isKnown);
  context.globalAlpha = n > 1200 ? 0.8 : 0.9;
  for (const { color, shape, isKnown, points } of order) {
    context.beginPath();
    for (const i of points) trace(context, shape, view.x(xs[i]), view.y(ys[i]), isKnown ? r : Math.min(r, SMALL));
    context.fillStyle = color;
    context.fill();
  }
  context.globalAlpha = 1;
}

// Lines through points along their leading directions, the first one thick. The longest has the same length at any zoom.
function drawArrows(context, view, scale) {
  const count = packed.arrows.count;
  const length = Math.min(20, 0.6 * Math.sqrt((view.width * view.height) / Math.max(arrowPoints.length, 1)));
  // Where dots lie close there is room for some of them.
  const drawn = [];
  arrowPoints.forEach((point, k) => {
    const [x, y] = [view.x(xs[point]), view.y(ys[point])];
    if (drawn.every((one) => Math.hypot(one.x - x, one.y - y) > ROOM)) drawn.push({ k, x, y });
  });
  context.strokeStyle = ink();
  context.lineCap = "round";
  for (let direction = count - 1; direction >= 0; direction--) {
    context.lineWidth = direction === 0 ? 1.8 : 0.9;
    context.beginPath();
    for (const { k, x, y } of drawn) {
      const at = 2 * ((scale * arrowPoints.length + k) * count + direction);
      const dx = (arrowParts[at] / 127) * length / 2;
      const dy = (arrowParts[at + 1] / 127) * length / 2;
      context.moveTo(x - dx, y + dy);
      context.lineTo(x + dx, y - dy);
    }
    context.stroke();
  }
}

function drawPaths(context, view) {
  for (const path of packed.paths) {
    const line = path.places.map(([x, y]) => [view.x(x), view.y(y)]);
    const strokes = [[isDark() ? "#15171b" : "#ffffff", 5.5], [isDark() ? "#ff9d5c" : "#c23b00", 2.5]];
    for (const [color, width] of strokes) {
      context.beginPath();
      line.forEach(([x, y], k) => (k ? context.lineTo(x, y) : context.moveTo(x, y)));
      context.strokeStyle = color;
      context.lineWidth = width;
      context.lineJoin = "round";
      context.setLineDash(path.connected || width > 3 ? [] : [6, 4]);
      context.stroke();
    }
    context.setLineDash([]);
    for (const [x, y] of [line[0], line[line.length - 1]]) {
      context.beginPath();
      context.arc(x, y, 5, 0, 2 * Math.PI);
      context.fillStyle = strokes[1][0];
      context.fill();
      context.strokeStyle = strokes[0][0];
      context.lineWidth = 2;
      context.stroke();
    }
  }
}

function drawAxes(context, view) {
  context.font = "12px system-ui, sans-serif";
  context.fillStyle = isDark() ? "#a9b1ba" : "#57606a";
  context.textAlign = "right";
  context.fillText(`${packed.axes[0]} →`, view.width - 6, view.height - 6);
  context.textAlign = "left";
  if (packed.axes[1]) context.fillText(`↑ ${packed.axes[1]}`, 6, 14);
}

function drawRing(context, view, point, isPinned) {
  const [x, y] = [view.x(xs[point]), view.y(ys[point])];
  context.beginPath();
  context.arc(x, y, 9, 0, 2 * Math.PI);
  context.lineWidth = isPinned ? 4 : 2.5;
  context.strokeStyle = ink();
  context.stroke();
}
