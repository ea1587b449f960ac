"use strict";
const by = (id) => document.getElementById(id);

// Programs: open, sort, filter.
const table = by("programs");
const bodies = () => [...table.tBodies];

function open(body, on) {
  body.classList.toggle("open", on);
  body.rows[1].hidden = !on;
  body.querySelector(".toggle").setAttribute("aria-expanded", String(on));
}

table.addEventListener("click", (event) => {
  const row = event.target.closest("tr.row");
  if (row) open(row.parentElement, row.nextElementSibling.hidden);
});

table.tHead.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  const header = button.parentElement, column = header.cellIndex;
  const numbers = header.classList.contains("number");
  const state = header.getAttribute("aria-sort");
  const next = state === "none" ? (numbers ? "descending" : "ascending")
    : state === (numbers ? "descending" : "ascending") ? (numbers ? "ascending" : "descending") : "none";
  for (const other of table.tHead.rows[0].cells) other.setAttribute("aria-sort", "none");
  header.setAttribute("aria-sort", next);
  const value = (body) => next === "none" ? body.dataset.at : body.rows[0].cells[column].dataset.v;
  const sign = next === "descending" ? -1 : 1;
  const compare = numbers || next === "none" ? (a, b) => value(a) - value(b)
    : (a, b) => value(a).localeCompare(value(b), undefined, { numeric: true });
  table.append(...bodies().sort((a, b) => sign * compare(a, b) || a.dataset.at - b.dataset.at));
});

function filter() {
  const words = by("filter").value.toLowerCase().split(/\s+/).filter(Boolean);
  const cause = by("cause").value;
  let shown = 0;
  for (const body of bodies()) {
    const text = (body.rows[0].textContent + body.querySelector("dl").textContent).toLowerCase();
    body.hidden = (cause && body.dataset.cause !== cause) || !words.every((word) => text.includes(word));
    shown += !body.hidden;
  }
  by("shown").textContent = `${shown} program${shown === 1 ? "" : "s"}`;
}
by("filter").addEventListener("input", filter);
by("cause").addEventListener("input", filter);

// The time line: what is under the pointer, and enlarging a part.
const line = by("line"), zoom = by("zoom"), tip = by("tip");
const SVG = "http://www.w3.org/2000/svg";
const seconds = Number(line.dataset.seconds);

document.addEventListener("pointermove", (event) => {
  const about = event.target.closest ? event.target.closest("[data-tip]") : null;
  tip.hidden = !about;
  if (!about) return;
  tip.textContent = about.dataset.tip.trim();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8))}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8))}px`;
});

function time(value) {
  const units = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"]];
  if (value <= 0) return "0 s";
  if (value >= 100) return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
  const [unit, name] = units.find(([size]) => value >= size) || units[2];
  return `${Number((value / unit).toPrecision(5))} ${name}`;
}

let view = [0, 1];
function show(from, to) {
  view = [from, to];
  const width = to - from;
  zoom.setAttribute("x", `${-100 * from / width}%`);
  zoom.setAttribute("width", `${100 / width}%`);
  by("reset").hidden = width === 1;
  const raw = seconds * width / 8, base = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * base).find((n) => n >= raw);
  const lines = [];
  for (let i = Math.ceil(from * seconds / step); i * step <= to * seconds; i++) {
    const x = `${100 * (i * step / seconds - from) / width}%`;
    const mark = document.createElementNS(SVG, "line"), text = document.createElementNS(SVG, "text");
    for (const [name, value] of [["x1", x], ["x2", x], ["y1", 18], ["y2", 200]]) mark.setAttribute(name, value);
    for (const [name, value] of [["x", x], ["y", 12], ["dx", 3]]) text.setAttribute(name, value);
    text.textContent = time(i * step);
    lines.push(mark, text);
  }
  by("axis").replaceChildren(...lines);
}

let drag = null;
const place = (event) => {
  const box = line.getBoundingClientRect();
  return Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
};
line.addEventListener("pointerdown", (event) => {
  if (event.button) return;
  drag = { from: place(event), box: document.createElementNS(SVG, "rect") };
  for (const [name, value] of [["class", "select"], ["y", 18], ["height", 182]]) drag.box.setAttribute(name, value);
});
addEventListener("pointermove", (event) => {
  if (!drag) return;
  const to = place(event);
  if (Math.abs(to - drag.from) * line.clientWidth > 4 && !drag.box.parentNode) line.append(drag.box);
  drag.box.setAttribute("x", `${100 * Math.min(drag.from, to)}%`);
  drag.box.setAttribute("width", `${100 * Math.abs(to - drag.from)}%`);
});
addEventListener("pointerup", (event) => {
  if (!drag) return;
  const [from, to] = [drag.from, place(event)].sort((a, b) => a - b), moved = drag.box.parentNode;
  drag.box.remove();
  drag = null;
  const width = view[1] - view[0];
  if (moved) {
    if ((to - from) * width * seconds > 1e-6) show(view[0] + from * width, view[0] + to * width);
    return;
  }
  const bar = event.target.closest ? event.target.closest("[data-program]") : null;
  const body = bar && by(`p${bar.dataset.program}`);
  if (!body) return;
  body.hidden = false;
  open(body, true);
  body.scrollIntoView({ block: "center" });
  body.classList.add("hit");
  setTimeout(() => body.classList.remove("hit"), 1500);
});
line.addEventListener("dblclick", () => show(0, 1));
by("reset").addEventListener("click", () => show(0, 1));
