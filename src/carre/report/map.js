// The map: what it shows, and how to point at it with a mouse, a finger or the keyboard.

class PointMap {
  constructor() {
    this.frame = document.getElementById("map");
    this.base = document.getElementById("points");
    this.marks = document.getElementById("marks");
    this.readout = document.getElementById("readout");
    this.announcement = document.getElementById("announcement");
    this.legend = document.getElementById("legend");
    this.view = new View();
    this.scale = packed.chosen;
    this.quantity = quantities[0];
    this.shows = { arrows: true, paths: true };
    this.point = -1;
    this.isPinned = false;
    this.sheet = null;
    if (packed.thumbnails) {
      this.sheet = new Image();
      this.sheet.addEventListener("load", () => this.mark());
      this.sheet.src = packed.thumbnails.source;
    }
    this.listen();
  }

  listen() {
    const at = (event) => [event.offsetX, event.offsetY];
    this.marks.addEventListener("pointermove", (event) => {
      if (this.drag) this.pan(event);
      else if (event.pointerType === "mouse" && !this.isPinned) this.select(this.nearest(...at(event), 22), false);
    });
    this.marks.addEventListener("pointerdown", (event) => {
      if (event.pointerType === "mouse" && this.view.zoom > 1) {
        this.drag = { x: event.clientX, y: event.clientY, isMoved: false };
        this.marks.setPointerCapture(event.pointerId);
      }
    });
    this.marks.addEventListener("pointerup", () => {
      this.isDragged = Boolean(this.drag && this.drag.isMoved);
      this.drag = null;
    });
    this.marks.addEventListener("pointerleave", (event) => {
      if (event.pointerType === "mouse" && !this.isPinned && document.activeElement !== this.marks) this.select(-1, false);
    });
    this.marks.addEventListener("click", (event) => {
      if (this.isDragged) return;
      const found = this.nearest(...at(event), 28);
      this.select(found, found >= 0 && !(this.isPinned && found === this.point));
    });
    this.marks.addEventListener("keydown", (event) => this.key(event));
    this.marks.addEventListener("blur", () => { if (!this.isPinned) this.select(-1, false); });
    new ResizeObserver(() => this.draw()).observe(this.frame);
    night.addEventListener("change", () => this.draw());
    for (const [name, value] of [["beforeprint", true], ["afterprint", false]]) {
      window.addEventListener(name, () => { isPrinting = value; this.draw(); });
    }
  }

  pan(event) {
    const [dx, dy] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
    if (Math.hypot(dx, dy) < 3 && !this.drag.isMoved) return;
    this.view.move(dx, dy);
    this.drag = { x: event.clientX, y: event.clientY, isMoved: true };
    this.draw();
  }

  key(event) {
    const directions = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const zooms = { "+": () => this.zoom(1.5), "=": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5), 0: () => this.zoom(0) };
    if (directions[event.key]) this.step(...directions[event.key]);
    else if (event.key === "Enter" || event.key === " ") {
      if (this.point >= 0) this.select(this.point, !this.isPinned);
    } else if (event.key === "Escape") this.select(-1, false);
    else if (zooms[event.key]) zooms[event.key]();
    else return;
    event.preventDefault();
  }

  // Zooms around the point that is selected; 0 shows everything.
  zoom(factor) {
    if (factor === 0) this.view.all();
    else {
      this.view.zoom = Math.min(64, Math.max(1, this.view.zoom * factor));
      if (this.point >= 0) this.view.center = [xs[this.point], ys[this.point]];
      if (this.view.zoom === 1) this.view.all();
    }
    this.draw();
  }

  nearest(x, y, reach) {
    let [best, found] = [reach * reach, -1];
    for (let i = 0; i < n; i++) {
      const square = (this.view.x(xs[i]) - x) ** 2 + (this.view.y(ys[i]) - y) ** 2;
      if (square < best) [best, found] = [square, i];
    }
    return found;
  }

  // Goes to the nearest point within 45° of a direction; from nowhere, to the point nearest to the middle.
  step(dx, dy) {
    if (this.point < 0) {
      this.select(this.nearest(this.view.width / 2, this.view.height / 2, 1e9), false);
      return;
    }
    const [x, y] = [this.view.x(xs[this.point]), this.view.y(ys[this.point])];
    let [best, found] = [Infinity, this.point];
    for (let i = 0; i < n; i++) {
      const [ax, ay] = [this.view.x(xs[i]) - x, this.view.y(ys[i]) - y];
      const along = ax * dx + ay * dy;
      const aside = Math.abs(ax * dy) + Math.abs(ay * dx);
      if (along > 0.5 && aside <= along && along + 2 * aside < best) [best, found] = [along + 2 * aside, i];
    }
    this.select(found, this.isPinned);
    const [px, py] = [this.view.x(xs[found]), this.view.y(ys[found])];
    if (px < 0 || py < 0 || px > this.view.width || py > this.view.height) {
      this.view.center = [xs[found], ys[found]];
      this.draw();
    }
  }

  select(point, isPinned) {
    if (point === this.point && isPinned === this.isPinned) return;
    this.point = point;
    this.isPinned = isPinned;
    this.mark();
    this.announcement.textContent = point < 0 ? "" : this.lines().map(([name, text]) => `${name} ${text}`).join(", ");
  }

  lines() {
    const lines = [["row", String(rows[this.point])]];
    for (const quantity of quantities) {
      const value = quantity.at(this.scale)[this.point];
      if (quantity.isPartial && Number.isNaN(value)) continue;
      const isUnmeasured = Number.isNaN(value) && quantity.values === undefined;
      lines.push([quantity.name, isUnmeasured ? "not measured" : written(value, quantity)]);
    }
    return lines;
  }

  draw() {
    const width = this.frame.clientWidth;
    if (!width) return;
    const height = this.frame.clientHeight;
    this.view.fit(width, height);
    const context = prepare(this.base, width, height);
    const colors = palette(this.quantity, this.scale);
    drawPoints(context, this.view, colors);
    if (this.shows.arrows) drawArrows(context, this.view, this.scale);
    if (this.shows.paths) drawPaths(context, this.view);
    drawAxes(context, this.view);
    drawLegend(this.legend, this.quantity, colors);
    this.mark();
  }

  mark() {
    if (!this.view.width) return;
    const context = prepare(this.marks, this.view.width, this.view.height);
    this.readout.hidden = this.point < 0;
    if (this.point < 0) return;
    drawRing(context, this.view, this.point, this.isPinned);
    this.fillReadout();
    this.placeReadout();
  }

  fillReadout() {
    const [first, ...others] = this.lines();
    const title = document.createElement("strong");
    title.textContent = `Row ${first[1]}${this.isPinned ? " (kept)" : ""}`;
    const list = document.createElement("dl");
    for (const [name, text] of others) {
      const term = document.createElement("dt");
      const value = document.createElement("dd");
      term.textContent = name;
      value.textContent = text;
      list.append(term, value);
    }
    this.readout.replaceChildren(title, ...this.thumbnail(), list);
  }

  thumbnail() {
    const sheet = packed.thumbnails;
    if (!sheet || !this.sheet.complete) return [];
    const canvas = document.createElement("canvas");
    const factor = Math.max(1, Math.round(96 / Math.max(sheet.width, sheet.height)));
    [canvas.width, canvas.height] = [sheet.width, sheet.height];
    canvas.style.width = `${factor * sheet.width}px`;
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `picture of row ${rows[this.point]}`);
    const [column, line] = [this.point % sheet.columns, Math.floor(this.point / sheet.columns)];
    const source = [column * sheet.width, line * sheet.height, sheet.width, sheet.height];
    canvas.getContext("2d").drawImage(this.sheet, ...source, 0, 0, sheet.width, sheet.height);
    return [canvas];
  }

  placeReadout() {
    const [x, y] = [this.view.x(xs[this.point]), this.view.y(ys[this.point])];
    const { offsetWidth: width, offsetHeight: height } = this.readout;
    const left = x + 18 + width < this.view.width ? x + 18 : Math.max(0, x - 18 - width);
    const top = Math.min(Math.max(0, y - height / 2), Math.max(0, this.view.height - height));
    this.readout.style.left = `${left}px`;
    this.readout.style.top = `${top}px`;
  }
}
