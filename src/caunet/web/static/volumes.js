// The tab Volumes: two of them on one grid, in three planes, before and after.

import { volumes, volumesExample } from "./api.js";
import { definitions, html, meter, number, words } from "./draw.js";
import { decode, size } from "./pictures.js";

const $ = (id) => document.getElementById(id);
const LIMIT = 40 * 2 ** 20; // the server reads so much of one request
const AXES = ["x", "y", "z"];
const HINTS = {
  both: "The first in green, the second in magenta: gray where they agree.",
  checkers: "Fields of the first and of the second in turn: edges go on where they agree.",
  difference: "Black where they agree, bright where they do not.",
  first: "The first volume alone.",
  second: "The second volume alone.",
};
const ADVICE = "Do not rely on it: the volumes may not show the same thing, or may overlap too little.";

export class Volumes {
  constructor() {
    Object.assign(this, { files: {}, running: null, again: null });
    for (const side of ["a", "b"]) {
      $(`volume-${side}`).addEventListener("change", ({ target }) => { this.#take(side, target.files[0]); target.value = ""; });
    }
    $("volume-example").addEventListener("click", () => this.#relate((model, signal) => volumesExample(model, signal)));
    $("volume-model").addEventListener("change", () => this.again && this.#relate(this.again));
    for (const axis of AXES) $(`slice-${axis}`).addEventListener("input", () => this.#draw(axis));
    for (const radio of document.querySelectorAll('[name="volume-view"], [name="volume-state"]')) {
      radio.addEventListener("change", () => this.#drawAll());
    }
  }

  #take(side, file) {
    if (!file) return;
    this.files[side] = file;
    $(`volume-name-${side}`).textContent = `${file.name}, ${size(file.size)}`;
    const { a, b } = this.files;
    this.#say("");
    if (a && b) this.#relate(async (model, signal) => volumes(...(await fitting(a, b)), model, signal));
  }

  // `question(model, signal)` asks the server.
  async #relate(question) {
    this.again = question;
    this.running?.abort();
    const mine = (this.running = new AbortController());
    $("volumes-result").classList.add("working");
    $("volume-example").textContent = "Aligning …";
    $("volumes-live").textContent = "Aligning.";
    try {
      const answer = await question($("volume-model").value, mine.signal);
      const shown = await Promise.all([answer.first_png, answer.before_png, answer.after_png].map((png) => voxels(png, answer.shown)));
      if (this.running === mine) this.#show(answer, shown);
    } catch (error) {
      if (error.name === "AbortError" || this.running !== mine) return;
      this.again = null;
      this.#say(error.message.replace(/^[ab](?=[: ])/, (field) => (field === "a" ? "First volume" : "Second volume")));
    }
    $("volumes-result").classList.remove("working");
    $("volume-example").textContent = "Try an example";
  }

  #show(answer, [first, before, after]) {
    const [depth, height, width] = answer.shown.size;
    Object.assign(this, { first, before, after, sides: { x: width, y: height, z: depth }, spacing: answer.shown.spacing });
    this.#say("");
    for (const axis of AXES) {
      const last = this.sides[axis] - 1;
      Object.assign($(`slice-${axis}`), { max: last, value: last >> 1 });
    }
    $("volumes-result").hidden = false;
    this.#numbers(answer);
    this.#drawAll();
  }

  #numbers({ first_png, before_png, after_png, ...answer }) {
    const { parameters: p, confidence, error, shown } = answer;
    const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(2)}`;
    const facts = [
      ["shift", `${AXES.map((axis) => signed(p[`shift_${axis}`])).join(", ")} mm (x, y, z)`],
      ["angle", `${p.angle.toFixed(2)}°`],
      ["scale", p.scale.toFixed(4)],
      ["first", sides(answer.size_a)],
      ["second", sides(answer.size_b)],
    ];
    if (error !== null) facts.push(["true error", `${error.toFixed(3)} voxels at the corners`]);
    facts.push(["time", `${Math.round(answer.milliseconds)} ms`]);
    meter($("volume-trust"), confidence);
    $("volume-trust-text").textContent = `${words(confidence)}, ${confidence.toFixed(2)}`;
    $("volume-advice").textContent = confidence < 0.5 ? ADVICE : "";
    definitions($("volume-facts"), facts);
    $("volume-matrix-about").textContent = `Millimeters of the first to millimeters of the second, ${answer.space}. The planes are shown in cubes of ${number(shown.spacing, 2)} mm.`;
    $("volume-matrix").replaceChildren(...answer.matrix_mm.map((row) => html("tr", {}, ...row.map((value) => html("td", {}, number(value))))));
    URL.revokeObjectURL(this.address);
    this.address = URL.createObjectURL(new Blob([JSON.stringify(answer, null, 1)], { type: "application/json" }));
    $("volume-json").href = this.address;
    $("volumes-live").textContent = `Aligned. ${facts.map((fact) => fact.join(": ")).join("; ")}. Confidence ${words(confidence)}.`;
  }

  #drawAll() {
    $("volumes-hint").textContent = HINTS[chosen("view")];
    for (const axis of AXES) this.#draw(axis);
  }

  #draw(axis) {
    const at = Number($(`slice-${axis}`).value);
    const { x: width, y: height, z: depth } = this.sides;
    // Columns and rows of each plane; the head is up, the front is up from above and left from the side.
    const [columns, rows, index] = {
      z: [width, height, (u, v) => (at * height + v) * width + u],
      y: [width, depth, (u, v) => ((depth - 1 - v) * height + at) * width + u],
      x: [height, depth, (u, v) => ((depth - 1 - v) * height + u) * width + at],
    }[axis];
    const [second, paint] = [chosen("state") === "after" ? this.after : this.before, PAINT[chosen("view")]];
    const image = new ImageData(columns, rows);
    const field = Math.max(4, Math.ceil(Math.max(columns, rows) / 8));
    for (let v = 0, n = 0; v < rows; v += 1) {
      for (let u = 0; u < columns; u += 1, n += 4) {
        const k = index(u, v);
        image.data.set(paint(this.first[k], second[k], (Math.floor(u / field) + Math.floor(v / field)) % 2), n);
        image.data[n + 3] = 255;
      }
    }
    const canvas = $(`plane-${axis}`);
    Object.assign(canvas, { width: columns, height: rows });
    canvas.getContext("2d", { willReadFrequently: true }).putImageData(image, 0, 0); // drawn pixel by pixel
    canvas.setAttribute("aria-label", `Slice ${at + 1} of ${this.sides[axis]} across ${axis}. ${HINTS[chosen("view")]}`);
    $(`place-${axis}`).textContent = `${at + 1} of ${this.sides[axis]}`;
  }

  #say(text) {
    $("volumes-message").textContent = text;
    $("volumes-message").hidden = !text;
    if (!text) return;
    $("volumes-live").textContent = "";
    $("volumes-result").hidden = true;
  }
}

const PAINT = {
  both: (a, b) => [b, a, b],
  checkers: (a, b, odd) => (odd ? [b, b, b] : [a, a, a]),
  difference: (a, b) => Array(3).fill(Math.min(255, 2 * Math.abs(a - b))),
  first: (a) => [a, a, a],
  second: (a, b) => [b, b, b],
};

const sides = ([depth, height, width]) => `depth ${depth}, height ${height}, width ${width}`;
const chosen = (name) => document.querySelector(`[name="volume-${name}"]:checked`).value;

// The slices of a mosaic one after the other: a byte for each voxel.
async function voxels(png, { size: [depth, height, width], columns }) {
  const bitmap = await createImageBitmap(decode(png), { colorSpaceConversion: "none" });
  const canvas = html("canvas", { width: bitmap.width, height: bitmap.height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  context.drawImage(bitmap, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  const bytes = new Uint8Array(depth * height * width);
  for (let z = 0, n = 0; z < depth; z += 1) {
    const corner = Math.floor(z / columns) * height * canvas.width + (z % columns) * width;
    for (let y = 0; y < height; y += 1) {
      for (let x = 0; x < width; x += 1, n += 1) bytes[n] = data[4 * (corner + y * canvas.width + x)];
    }
  }
  return bytes;
}

// Both files, packed where they are too large otherwise and can be.
async function fitting(...files) {
  const total = (all) => all.reduce((sum, file) => sum + file.size, 4096);
  if (total(files) < LIMIT) return files;
  const packed = await Promise.all(files.map((file) => (/\.nii$/i.test(file.name) ? pack(file) : file)));
  if (total(packed) < LIMIT) return packed;
  throw new Error(`The two volumes have ${size(total(packed))} together; the limit is ${size(LIMIT)}.`);
}

const pack = (file) => new Response(file.stream().pipeThrough(new CompressionStream("gzip"))).blob();
