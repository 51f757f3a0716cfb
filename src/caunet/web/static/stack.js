// The tab Stack: frames that drift, brought into the place of the first; before, after, and the path.

import { stack } from "./api.js";
import { definitions, html, svg } from "./draw.js";
import { open } from "./pictures.js";

const $ = (id) => document.getElementById(id);
const LONGEST = 320; // of a frame that is sent
const MOST = 24;

export class Stack {
  #timer = null;

  constructor(models) {
    Object.assign(this, { models, frames: [], matrices: [], running: null, calm: matchMedia("(prefers-reduced-motion: reduce)") });
    $("frames").addEventListener("change", ({ target }) => { this.#take([...target.files]); target.value = ""; });
    $("stack-model").addEventListener("change", () => this.frames.length && this.#align());
    $("stack-example").addEventListener("click", () => this.#example());
    $("stack-frame").addEventListener("input", () => { this.#stop(); this.#draw(); });
    $("stack-play").addEventListener("click", () => (this.#timer ? this.#stop() : this.#play()));
  }

  async #take(files) {
    if (!files.length) return;
    this.#say("");
    if (files.length < 2 || files.length > MOST) return this.#say(`Choose 2 to ${MOST} frames; these are ${files.length}.`);
    const order = new Intl.Collator("en", { numeric: true }).compare;
    files.sort((one, other) => order(one.name, other.name));
    try {
      const opened = await Promise.all(files.map((file) => open(file)));
      const [{ bitmap: first }] = opened;
      const odd = opened.findIndex(({ bitmap }) => bitmap.width !== first.width || bitmap.height !== first.height);
      if (odd >= 0) return this.#say(`“${files[odd].name}” has another size than “${files[0].name}”.`);
      this.#use(opened.map(({ bitmap }) => bitmap), opened[0].factor);
    } catch (error) {
      this.#say(error.message.replace(/^picture/, "A frame"));
    }
  }

  // Bitmaps of one size, `reduced` times smaller than the frames they show.
  #use(bitmaps, reduced = 1, known = null) {
    this.scale = Math.max(1, Math.max(bitmaps[0].width, bitmaps[0].height) / LONGEST);
    const [width, height] = [bitmaps[0].width, bitmaps[0].height].map((side) => Math.round(side / this.scale));
    this.frames = bitmaps.map((bitmap) => {
      const canvas = html("canvas", { width, height });
      canvas.getContext("2d").drawImage(bitmap, 0, 0, width, height);
      return canvas;
    });
    this.scale *= reduced;
    this.known = known;
    this.#align();
  }

  async #align() {
    this.running?.abort();
    const mine = (this.running = new AbortController());
    this.#stop();
    $("stack-result").classList.add("working");
    $("stack-live").textContent = "Aligning.";
    try {
      const sent = await Promise.all(this.frames.map((canvas) => new Promise((resolve) => canvas.toBlob(resolve, "image/png"))));
      const answer = await stack(sent, $("stack-model").value, mine.signal);
      this.#show(answer);
    } catch (error) {
      if (error.name === "AbortError") return;
      this.#say(error.message);
    }
    if (this.running === mine) $("stack-result").classList.remove("working");
  }

  #show({ matrices, relations, problems, milliseconds }) {
    this.#say("");
    const [{ width, height }] = this.frames;
    const center = [(width - 1) / 2, (height - 1) / 2];
    // Where the scene of the first frame is in each: the other way round.
    const moved = (m) => m && [0, 1].map((k) => this.scale * (center[k] - (m[k][0] * center[0] + m[k][1] * center[1] + m[k][2])));
    Object.assign(this, { matrices, path: matrices.map(moved) });
    for (const id of ["stack-before", "stack-after"]) Object.assign($(id), { width, height });
    Object.assign($("stack-frame"), { max: matrices.length - 1, value: 0 });
    $("stack-result").hidden = false;
    const farthest = Math.max(...this.path.filter(Boolean).map((p) => Math.hypot(...p)));
    const facts = [
      ["frames", `${matrices.length}, ${relations} relations`],
      ["farthest", `${farthest.toFixed(1)} px from the first`],
      ...problems.map(({ frame, reason }) => [`frame ${frame + 1}`, reason.replace(/^frame \d+ /, "")]),
      ["time", `${Math.round(milliseconds)} ms`],
    ];
    definitions($("stack-facts"), facts);
    $("stack-live").textContent = `Aligned. ${facts.map((fact) => fact.join(": ")).join("; ")}.`;
    this.#plot();
    this.#draw();
    if (!this.calm.matches) this.#play();
  }

  #plot() {
    const points = [...this.path, ...(this.known ?? [])].filter(Boolean);
    const reach = 1.15 * Math.max(4, ...points.flat().map(Math.abs));
    const node = $("stack-path");
    node.setAttribute("viewBox", `${-reach} ${-reach} ${2 * reach} ${2 * reach}`);
    const line = (path, attributes) => svg("polyline", { ...attributes, points: path.filter(Boolean).map((p) => p.join()).join(" ") }, node);
    node.replaceChildren();
    if (this.known) line(this.known, { class: "known" });
    line(this.path, {});
    this.dot = svg("circle", { r: 0.035 * reach }, node);
  }

  #draw() {
    const n = Number($("stack-frame").value);
    const [frame, matrix] = [this.frames[n], this.matrices[n]];
    $("stack-number").textContent = `${n + 1} of ${this.frames.length}`;
    $("stack-before").getContext("2d").drawImage(frame, 0, 0);
    const after = $("stack-after").getContext("2d");
    after.resetTransform();
    after.clearRect(0, 0, frame.width, frame.height);
    if (matrix) {
      const [[a, c, x], [b, d, y]] = matrix;
      // Canvases have corners of pixels where matrices have centers.
      after.setTransform(a, b, c, d, x + 0.5 - 0.5 * (a + c), y + 0.5 - 0.5 * (b + d));
      after.drawImage(frame, 0, 0);
    }
    const at = this.path[n];
    this.dot.setAttribute("visibility", at ? "visible" : "hidden");
    if (at) { this.dot.setAttribute("cx", at[0]); this.dot.setAttribute("cy", at[1]); }
  }

  #play() {
    $("stack-play").textContent = "Stop";
    this.#timer = setInterval(() => {
      $("stack-frame").value = (Number($("stack-frame").value) + 1) % this.frames.length;
      this.#draw();
    }, 200);
  }

  #stop() {
    clearInterval(this.#timer);
    this.#timer = null;
    $("stack-play").textContent = "Play";
  }

  // A walk over a photograph, with its path known.
  async #example() {
    $("stack-example").disabled = true;
    try {
      const { photographs } = await this.models;
      const photo = photographs.find(({ name }) => name === "coffee") ?? photographs[0];
      const whole = await createImageBitmap(await (await fetch(photo.url)).blob());
      const [width, height] = [200, 150];
      const steps = [[0, 0], [6, -3], [11, 2], [9, 9], [16, 14], [22, 10], [27, 3], [21, -5], [13, -9], [5, -12], [-4, -8], [-9, -2]];
      const [x, y] = [(whole.width - width) >> 1, (whole.height - height) >> 1];
      const frames = steps.map(([dx, dy]) => {
        const canvas = html("canvas", { width, height });
        canvas.getContext("2d").drawImage(whole, x - dx, y - dy, width, height, 0, 0, width, height);
        return canvas;
      });
      this.#use(frames, 1, steps);
    } catch (error) {
      this.#say(error.message);
    }
    $("stack-example").disabled = false;
  }

  #say(text) {
    $("stack-message").textContent = text;
    $("stack-message").hidden = !text;
    if (!text) return;
    this.#stop();
    $("stack-live").textContent = "";
    $("stack-result").hidden = true;
  }
}
