"""What stands in the page of a map: its elements, their style, and the script that draws."""

from __future__ import annotations

BODY = """<main>
<canvas id="map" tabindex="0" aria-label="map of the texts"></canvas>
<div id="tip" role="status" hidden></div>
<aside>
<input id="search" type="search" placeholder="find in the texts" aria-label="find in the texts">
<div id="found"></div>
<div id="legend"></div>
<p class="hint">Drag to move, scroll to zoom, double-click to see all.</p>
</aside>
</main>"""

MAP_STYLE = """
body { display: flex; flex-direction: column; }
main { position: relative; flex: 1; min-height: 320px; display: flex; }
canvas { flex: 1; min-width: 0; width: 100%; height: 100%; cursor: crosshair; outline: none; }
aside { width: 230px; padding: 8px 20px 16px 8px; overflow: auto; }
#search { width: 100%; padding: 6px 8px; border: 1px solid #ccc; border-radius: 6px;
  font: inherit; }
#found { min-height: 22px; color: #555; font-size: 13px; padding: 2px 2px 8px; }
#legend h2 { font-size: 14px; margin: 0 0 4px; overflow-wrap: anywhere; }
#legend button { display: flex; gap: 8px; width: 100%; align-items: baseline; padding: 3px 4px;
  border: 0; border-radius: 4px; background: none; font: inherit; text-align: left;
  cursor: pointer; }
#legend button:hover, #legend button:focus-visible { background: #f0f0f0; }
#legend button[aria-pressed="false"] { opacity: 0.35; }
#legend i { flex: none; width: 11px; height: 11px; border-radius: 50%; }
#legend span { overflow-wrap: anywhere; }
#legend small { color: #777; margin-left: auto; }
#scale { height: 14px; border-radius: 3px; }
#ends { display: flex; justify-content: space-between; font-size: 13px; color: #555; }
.hint { color: #777; font-size: 13px; }
#tip { position: absolute; max-width: 420px; padding: 8px 11px; background: #fff; color: #222;
  border: 1px solid #bbb; border-radius: 8px; box-shadow: 0 3px 12px rgba(0, 0, 0, 0.18);
  pointer-events: none; white-space: pre-wrap; overflow-wrap: anywhere; font-size: 14px; }
#tip b { display: block; color: #555; font-weight: 500; font-size: 13px; }
@media (max-width: 700px) {
  main { flex-direction: column; } aside { width: 100%; padding-left: 20px; }
}
"""

# Texts reach the page by textContent alone, which is never read as HTML.
SCRIPT = """
"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const canvas = document.getElementById("map"), pen = canvas.getContext("2d");
const tip = document.getElementById("tip"), legend = document.getElementById("legend");
const search = document.getElementById("search"), found = document.getElementById("found");
const count = data.x.length, left = 52, bottom = 44, top_ = 10, right = 12;
const lowered = data.texts.map(text => text.toLowerCase());
const hidden = new Set();
let view = null, matches = null, width = 0, height = 0, hovered = -1;

function make(name, parent, text) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}
function whole() {
  const low = values => values.reduce((a, b) => Math.min(a, b));
  const high = values => values.reduce((a, b) => Math.max(a, b));
  const spanX = (high(data.x) - low(data.x)) || 1, spanY = (high(data.y) - low(data.y)) || 1;
  return { x0: low(data.x) - 0.05 * spanX, x1: high(data.x) + 0.05 * spanX,
           y0: low(data.y) - 0.05 * spanY, y1: high(data.y) + 0.05 * spanY };
}
function colourAt(share) {
  const steps = data.scale.steps, place = share * (steps.length - 1);
  const i = Math.min(Math.floor(place), steps.length - 2), part = place - i;
  const channel = (hex, k) => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
  const mix = k => Math.round(channel(steps[i], k) * (1 - part) + channel(steps[i + 1], k) * part);
  return `rgb(${mix(0)}, ${mix(1)}, ${mix(2)})`;
}
const colours = Array.from({ length: count }, (_, i) => {
  if (data.groups) return data.groups[data.places[i]].colour;
  if (!data.scale) return data.plain;
  const { low, high } = data.scale, value = data.values[i];
  const share = high > low ? Math.min(1, Math.max(0, (value - low) / (high - low))) : 0.5;
  return value === null ? data.none : colourAt(share);
});
const order = Array.from({ length: count }, (_, i) => (i * 7919 + 13) % count);
const drawOrder = new Set(order).size === count ? order : order.map((_, i) => i);
const visible = i => !(data.groups && hidden.has(data.places[i]));
const atX = x => left + (x - view.x0) / (view.x1 - view.x0) * (width - left - right);
const atY = y => height - bottom - (y - view.y0) / (view.y1 - view.y0) * (height - bottom - top_);

function ticks(low, high) {
  const rough = (high - low) / 6, base = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map(k => k * base).find(s => s >= rough);
  const all = [];
  // Multiples, not a running sum, which would show 1.1e-17 for 0.
  for (let k = Math.ceil(low / step); k * step <= high; k++) all.push(k * step);
  return all.map(t => [t, Number(t.toPrecision(6)).toString()]);
}
function drawAxes() {
  pen.font = "12px system-ui, sans-serif";
  pen.strokeStyle = "#eeeeee"; pen.fillStyle = "#777777"; pen.lineWidth = 1;
  pen.textAlign = "center";
  for (const [t, label] of ticks(view.x0, view.x1)) {
    pen.beginPath(); pen.moveTo(atX(t), top_); pen.lineTo(atX(t), height - bottom); pen.stroke();
    pen.fillText(label, atX(t), height - bottom + 15);
  }
  pen.textAlign = "right";
  for (const [t, label] of ticks(view.y0, view.y1)) {
    pen.beginPath(); pen.moveTo(left, atY(t)); pen.lineTo(width - right, atY(t)); pen.stroke();
    pen.fillText(label, left - 6, atY(t) + 4);
  }
  pen.fillStyle = "#222222"; pen.textAlign = "center"; pen.font = "13px system-ui, sans-serif";
  pen.fillText(data.axes[0], (left + width) / 2, height - 8);
  pen.save(); pen.translate(14, (height - bottom) / 2); pen.rotate(-Math.PI / 2);
  pen.fillText(data.axes[1], 0, 0); pen.restore();
}
function draw() {
  pen.clearRect(0, 0, width, height);
  drawAxes();
  pen.save();
  pen.beginPath(); pen.rect(left, top_, width - left - right, height - bottom - top_); pen.clip();
  const radius = Math.min(6, Math.max(2, 90 / Math.sqrt(count)));
  const alpha = Math.min(0.9, Math.max(0.35, 1.15 - 0.2 * Math.log10(count)));
  for (const i of drawOrder) {
    if (!visible(i)) continue;
    const faded = matches && !matches.has(i);
    pen.globalAlpha = faded ? 0.07 : matches ? 0.95 : alpha;
    pen.fillStyle = colours[i];
    pen.beginPath(); pen.arc(atX(data.x[i]), atY(data.y[i]), radius, 0, 7); pen.fill();
  }
  if (hovered >= 0) {
    pen.globalAlpha = 1; pen.strokeStyle = "#000000"; pen.lineWidth = 2;
    pen.beginPath();
    pen.arc(atX(data.x[hovered]), atY(data.y[hovered]), radius + 3, 0, 7);
    pen.stroke();
  }
  pen.restore();
}
function resize() {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  width = box.width; height = box.height;
  canvas.width = width * ratio; canvas.height = height * ratio;
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  draw();
}
function nearest(px, py) {
  let best = -1, least = 14 * 14;
  for (let i = 0; i < count; i++) {
    if (!visible(i)) continue;
    const dx = atX(data.x[i]) - px, dy = atY(data.y[i]) - py, far = dx * dx + dy * dy;
    if (far < least) { least = far; best = i; }
  }
  return best;
}
function about(i) {
  const value = data.groups ? data.groups[data.places[i]].name : data.scale ? data.values[i] : null;
  return `row ${i + 1}` + (data.color ? `, ${data.color}: ${value === null ? "none" : value}` : "");
}
function showTip(px, py) {
  hovered = nearest(px, py);
  tip.hidden = hovered < 0;
  if (hovered >= 0) {
    tip.replaceChildren();
    make("b", tip, about(hovered));
    tip.append(data.texts[hovered] ?? "");
    const room = canvas.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(px + 14, room.width - tip.offsetWidth - 6)) + "px";
    const fits = py + 18 + tip.offsetHeight <= room.height;
    tip.style.top = (fits ? py + 18 : py - tip.offsetHeight - 12) + "px";
  }
  draw();
}
function zoom(px, py, factor) {
  const x = view.x0 + (px - left) / (width - left - right) * (view.x1 - view.x0);
  const y = view.y0 + (height - bottom - py) / (height - bottom - top_) * (view.y1 - view.y0);
  view = { x0: x + (view.x0 - x) * factor, x1: x + (view.x1 - x) * factor,
           y0: y + (view.y0 - y) * factor, y1: y + (view.y1 - y) * factor };
  draw();
}
let dragged = null;
canvas.addEventListener("pointerdown", e => {
  dragged = { x: e.offsetX, y: e.offsetY, view }; canvas.setPointerCapture(e.pointerId);
});
canvas.addEventListener("pointerup", () => { dragged = null; });
canvas.addEventListener("pointermove", e => {
  if (!dragged) return showTip(e.offsetX, e.offsetY);
  const from = dragged.view;
  const dx = (e.offsetX - dragged.x) / (width - left - right) * (from.x1 - from.x0);
  const dy = (e.offsetY - dragged.y) / (height - bottom - top_) * (from.y1 - from.y0);
  view = { x0: from.x0 - dx, x1: from.x1 - dx, y0: from.y0 + dy, y1: from.y1 + dy };
  tip.hidden = true; hovered = -1;
  draw();
});
canvas.addEventListener("pointerleave", () => { tip.hidden = true; hovered = -1; draw(); });
canvas.addEventListener("wheel", e => {
  e.preventDefault(); zoom(e.offsetX, e.offsetY, e.deltaY > 0 ? 1.2 : 1 / 1.2);
}, { passive: false });
canvas.addEventListener("dblclick", () => { view = whole(); draw(); });
search.addEventListener("input", () => {
  const wanted = search.value.trim().toLowerCase();
  matches = wanted ? new Set(lowered.flatMap((t, i) => t.includes(wanted) ? [i] : [])) : null;
  found.textContent = matches ? `${matches.size} of ${count} texts` : "";
  draw();
});
function showLegend() {
  if (data.color) make("h2", legend, data.color);
  if (data.scale) {
    const bar = make("div", legend); bar.id = "scale";
    bar.style.background = `linear-gradient(to right, ${data.scale.steps.join(", ")})`;
    const ends = make("div", legend); ends.id = "ends";
    const { low, high } = data.scale;
    for (const end of [low, high]) make("span", ends, Number(end.toPrecision(4)));
  }
  (data.groups ?? []).forEach((group, place) => {
    const button = make("button", legend);
    button.setAttribute("aria-pressed", "true");
    make("i", button).style.background = group.colour;
    make("span", button, group.name);
    make("small", button, group.count.toLocaleString("en"));
    button.addEventListener("click", () => {
      const shows = hidden.delete(place) || !hidden.add(place);
      button.setAttribute("aria-pressed", String(shows));
      draw();
    });
  });
}
view = whole();
if (!data.texts.length) search.hidden = true;
showLegend();
new ResizeObserver(resize).observe(canvas);
"""
