// The photograph with the patch's frame on it, moved by pointer or arrow keys.

import { apply, corners, homography, invert } from "./geometry.js";
import { svg } from "./draw.js";

const STEPS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export class Stage {
  // `moved(x, y)` is called with every new center of the patch, in pixels of the photograph.
  constructor(node, moved) {
    Object.assign(this, { node, moved, x: 0, y: 0, width: 0, height: 0, zoom: 4, patch: 11 });
    this.image = document.createElement("img");
    this.image.alt = "";
    this.image.draggable = false;
    this.overlay = svg("svg", { "aria-hidden": "true", preserveAspectRatio: "none" });
    const halo = () => svg("polygon", { class: "halo" }, this.overlay);
    this.halos = [halo(), halo()];
    this.frame = svg("polygon", { class: "frame" }, this.overlay);
    this.seen = svg("polygon", { class: "seen" }, this.overlay);
    node.append(this.image, this.overlay);
    this.#listen();
  }

  show({ url, width, height }) {
    Object.assign(this, { width, height, x: width / 2, y: height / 2 });
    this.image.src = url;
    this.image.width = width;
    this.image.height = height;
    this.overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
  }

  // The center stays where a whole patch fits.
  place(x, y) {
    const margin = Math.min((this.patch * this.zoom) / 2, this.width / 2, this.height / 2);
    this.x = Math.round(Math.min(Math.max(x, margin), this.width - margin));
    this.y = Math.round(Math.min(Math.max(y, margin), this.height - margin));
  }

  draw(task, z) {
    const here = ([x, y]) => [this.x + x * this.zoom, this.y + y * this.zoom];
    const put = (nodes, points) => {
      const text = points.map((point) => here(point).map((v) => v.toFixed(1)).join()).join(" ");
      nodes.forEach((node) => node.setAttribute("points", text));
    };
    const square = corners(this.patch / 2);
    const H = homography(task, z);
    put([this.frame, this.halos[0]], square);
    // y(p') = x(H⁻¹ p'): the second patch sees the photograph through H⁻¹ of its own square.
    put([this.seen, this.halos[1]], H ? square.map((p) => apply(invert(H), p)) : square);
  }

  #move(x, y) {
    const before = [this.x, this.y];
    this.place(x, y);
    if (this.x !== before[0] || this.y !== before[1]) this.moved(this.x, this.y);
  }

  #listen() {
    let held = false;
    const follow = (event) => {
      const box = this.node.getBoundingClientRect();
      const scale = this.width / box.width;
      this.#move((event.clientX - box.left) * scale, (event.clientY - box.top) * scale);
    };
    this.node.addEventListener("pointerdown", (event) => {
      held = true;
      this.node.setPointerCapture(event.pointerId);
      follow(event);
    });
    this.node.addEventListener("pointermove", (event) => { if (held) follow(event); });
    for (const end of ["pointerup", "pointercancel"]) this.node.addEventListener(end, () => { held = false; });
    this.node.addEventListener("keydown", (event) => {
      const step = STEPS[event.key];
      if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
      event.preventDefault();
      const far = event.shiftKey ? 24 : 4;
      this.#move(this.x + far * step[0], this.y + far * step[1]);
    });
  }
}
