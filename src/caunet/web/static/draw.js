// Small pictures: patches on canvases, outlines and units in SVG. Colors come from the style sheets.

import { handles } from "./geometry.js";

const SVG = "http://www.w3.org/2000/svg";
export const NETWORKS = ["ctn", "bln", "can"];
// What least squares make of CAN's answer stands beside the networks.
export const ESTIMATES = [...NETWORKS, "refined"];
export const label = (who) => (who === "refined" ? "LSQ" : who.toUpperCase());

export function svg(name, attributes = {}, parent = null) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  parent?.append(node);
  return node;
}

export function html(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") node.className = value;
    else if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// rows (h, w) of numbers, `low` black and `high` white.
export function gray(canvas, rows, low = 0, high = 1) {
  const [height, width] = [rows.length, rows[0].length];
  Object.assign(canvas, { width, height });
  const image = new ImageData(width, height);
  rows.flat().forEach((value, n) => {
    const level = (255 * (value - low)) / (high - low || 1);
    image.data.set([level, level, level, 255], 4 * n);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

export class Quads {
  #half = 5; // to the centers of the corner pixels, which the server sends

  // `changed(z)` is called when a handle is dragged.
  constructor(node, changed) {
    Object.assign(this, { node, changed, task: null, z: null });
    for (let k = -10; k <= 10; k += 5) {
      svg("line", { class: "grid", x1: k, x2: k, y1: -12, y2: 12 }, node);
      svg("line", { class: "grid", y1: k, y2: k, x1: -12, x2: 12 }, node);
    }
    const half = this.#half;
    svg("rect", { class: "start", x: -half, y: -half, width: 2 * half, height: 2 * half }, node);
    this.shapes = Object.fromEntries(["truth", ...ESTIMATES].map((who) => [who, svg("polygon", { class: who }, node)]));
    this.grips = svg("g", {}, node);
    this.#listen();
  }

  show(answer) {
    this.#outline("truth", answer.truth_corners);
    for (const who of ESTIMATES) this.#outline(who, answer.networks[who]?.corners);
  }

  place(task, z) {
    Object.assign(this, { task, z });
    const found = handles(task, z, this.#half);
    while (this.grips.childElementCount < 2 * found.length) {
      svg("circle", { class: "handle", r: 0.75 }, this.grips);
      svg("circle", { class: "reach", r: 2.4 }, this.grips);
    }
    while (this.grips.childElementCount > 2 * found.length) this.grips.lastChild.remove();
    [...this.grips.children].forEach((circle, n) => {
      const [x, y] = found[n >> 1].at;
      circle.setAttribute("cx", x);
      circle.setAttribute("cy", y);
      circle.dataset.handle = n >> 1;
    });
  }

  #outline(who, points) {
    this.shapes[who].setAttribute("points", points ? points.map(([x, y]) => `${x - this.#half},${y - this.#half}`).join(" ") : "");
  }

  #listen() {
    let held = null;
    this.node.addEventListener("pointerdown", (event) => {
      held = event.target.dataset?.handle ?? null;
      if (held === null) return;
      this.node.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    this.node.addEventListener("pointermove", (event) => {
      if (held === null) return;
      const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(this.node.getScreenCTM().inverse());
      this.changed(handles(this.task, this.z, this.#half)[held].move([place.x, place.y]));
    });
    for (const end of ["pointerup", "pointercancel"]) this.node.addEventListener(end, () => { held = null; });
  }
}

// Numbers from 0 up as cells row by row, the largest in full color.
export class Cells {
  constructor(node, columns, { cell = 10, gap = 0 } = {}) {
    Object.assign(this, { node, columns, cell, gap, cells: [] });
  }

  // `ringed`: which one to mark.
  show(values, ringed = null) {
    if (this.cells.length !== values.length) this.#lay(values.length);
    const most = Math.max(...values, 1e-12);
    values.forEach((value, n) => {
      const share = Math.max(value, 0) / most;
      this.cells[n].setAttribute("fill-opacity", (0.03 + 0.97 * share).toFixed(3));
    });
    if (ringed === null) return;
    this.ring.setAttribute("cx", ((ringed % this.columns) + 0.5) * this.cell);
    this.ring.setAttribute("cy", (Math.floor(ringed / this.columns) + 0.5) * this.cell);
    this.ring.setAttribute("r", 0.72 * this.cell);
  }

  #lay(count) {
    const { node, columns, cell, gap } = this;
    node.replaceChildren();
    const margin = 6 * gap; // the ring is wider than a cell
    const [width, height] = [columns * cell, Math.ceil(count / columns) * cell].map((side) => side + 2 * margin);
    node.setAttribute("viewBox", `${-margin} ${-margin} ${width} ${height}`);
    this.cells = Array.from({ length: count }, (_, n) => {
      const [x, y] = [(n % columns) * cell + gap, Math.floor(n / columns) * cell + gap];
      return svg("rect", { x, y, width: cell - 2 * gap, height: cell - 2 * gap, rx: 3 * gap }, node);
    });
    this.ring = svg("circle", { class: "ring" }, node);
  }
}

export function meter(node, value) {
  node.firstElementChild.style.width = `${100 * Math.min(Math.max(value, 0), 1)}%`;
  node.setAttribute("aria-valuenow", value.toFixed(2));
  node.classList.toggle("low", value < 0.5);
}

export function words(confidence) {
  const scale = [[0.95, "very high"], [0.8, "high"], [0.5, "fair"], [0.2, "low"]];
  return scale.find(([least]) => confidence >= least)?.[1] ?? "very low";
}

// Names and values, one below the other, in a list of definitions.
export function definitions(node, facts) {
  node.replaceChildren(...facts.flatMap(([name, value]) => [html("dt", {}, name), html("dd", {}, value)]));
}

export function number(value, digits = 5) {
  const text = Math.abs(value) < 1e-12 ? "0" : Math.abs(value) < 0.001 ? value.toExponential(3) : value.toFixed(digits);
  return text.replaceAll("-", "−");
}
