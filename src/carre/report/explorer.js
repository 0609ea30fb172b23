// Connects the slider, the charts, the map and the numbers.

const map = new PointMap();
const slider = document.getElementById("scale");
const reset = document.getElementById("scale-reset");

function showScale(scale) {
  const sigma = String(Number(packed.scales[scale].toPrecision(3)));
  const isChosen = scale === packed.chosen;
  const note = isChosen ? "the chosen scale" : `${scale + 1} of ${packed.scales.length} scales`;
  slider.value = String(scale);
  slider.setAttribute("aria-valuetext", `σ = ${sigma}, ${note}`);
  const number = document.createElement("strong");
  const text = document.createElement("span");
  [number.textContent, text.textContent] = [sigma, note];
  document.getElementById("scale-value").replaceChildren(number, " ", text);
  document.getElementById("scale-note").textContent = packed.notes[scale];
  reset.hidden = isChosen;
  for (const kind of ["spectrum", "histogram"]) {
    for (const panel of document.querySelectorAll(`[data-${kind}]`)) panel.hidden = panel.dataset[kind] !== String(scale);
  }
  for (const marker of document.querySelectorAll('[data-marker="scale"]')) {
    marker.setAttribute("transform", `translate(${marker.dataset.places.split(" ")[scale]} 0)`);
  }
  map.scale = scale;
  map.draw();
}

slider.addEventListener("input", () => showScale(Number(slider.value)));
reset.addEventListener("click", () => {
  showScale(packed.chosen);
  slider.focus();
});

const select = document.getElementById("color");
// Where the dimension is the same everywhere, the first column says more.
const shown = new Set(quantities[0].at(packed.chosen));
const column = packed.columns.findIndex((one) => !one.isId);
if (shown.size === 1 && column >= 0) map.quantity = quantities[2 + column];
quantities.forEach((quantity, k) => {
  if (quantity.isId) return;
  const option = document.createElement("option");
  [option.value, option.textContent] = [String(k), quantity.name];
  option.selected = quantity === map.quantity;
  select.append(option);
});
select.addEventListener("change", () => {
  map.quantity = quantities[Number(select.value)];
  map.draw();
});
for (const kind of ["arrows", "paths"]) {
  const box = document.getElementById(`show-${kind}`);
  if (box) box.addEventListener("change", () => { map.shows[kind] = box.checked; map.draw(); });
}
for (const [name, factor] of [["zoom-in", 1.5], ["zoom-out", 1 / 1.5], ["zoom-all", 0]]) {
  document.getElementById(name).addEventListener("click", () => map.zoom(factor));
}

const numbers = document.getElementById("numbers").textContent;
document.getElementById("download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([numbers], { type: "application/json" }));
  link.download = "carre-report.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});
document.getElementById("copy").addEventListener("click", async () => {
  const said = document.getElementById("copied");
  try {
    await navigator.clipboard.writeText(numbers);
    said.textContent = "Copied.";
  } catch {
    said.textContent = "This browser does not allow it; download them instead.";
  }
});

showScale(packed.chosen);
