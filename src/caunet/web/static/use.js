// The tab Use: aligns two pictures and shows the transformation.

import { estimate } from "./api.js";
import { definitions, html, meter, number, words } from "./draw.js";
import { example } from "./example.js";
import { apply } from "./geometry.js";
import { decode, fits, open, reduced, reduction, size } from "./pictures.js";
import { Viewer } from "./viewer.js";

const $ = (id) => document.getElementById(id);
const DEFAULT = "projective";
// What models are called that are not called what they are; the server says which there are.
const LABELS = { euclidean: "translation and rotation", similarity: "translation, rotation and scale" };
const ADVICE = "Do not rely on it: the pictures may not show the same scene, or may overlap too little.";

export class Use {
  // `models`: a promise of what the server has to offer.
  constructor(models) {
    Object.assign(this, { models, files: {}, opened: {}, addresses: {}, known: null, running: null });
    this.viewer = new Viewer($);
    for (const side of ["a", "b"]) this.#inputs(side);
    models.then((offered) => this.#motionModels(offered.motion_models), () => {}); // who asks first shows the error
    $("pair").addEventListener("submit", (event) => { event.preventDefault(); this.#align(); });
    $("model").addEventListener("change", () => this.#ready() && this.#align());
    $("example").addEventListener("click", () => this.#example());
    $("copy").addEventListener("click", () => this.#copy());
    // A picture dropped beside the boxes must not replace the page.
    for (const kind of ["dragover", "drop"]) window.addEventListener(kind, (event) => event.preventDefault());
  }

  #motionModels(names) {
    const chosen = $("model").value || DEFAULT;
    $("model").replaceChildren(...names.map((name) => html("option", { value: name }, LABELS[name] ?? name.replaceAll("-", " "))));
    $("model").value = chosen;
  }

  #inputs(side) {
    const input = $(`file-${side}`);
    const box = document.querySelector(`.drop[data-side="${side}"]`);
    input.addEventListener("change", () => { if (input.files[0]) this.#take({ [side]: input.files[0] }); input.value = ""; });
    box.addEventListener("dragover", () => box.classList.add("over"));
    box.addEventListener("dragleave", () => box.classList.remove("over"));
    box.addEventListener("drop", (event) => {
      box.classList.remove("over");
      const [first, second] = event.dataTransfer.files;
      if (first) this.#take(second ? { a: first, b: second } : { [side]: first });
    });
  }

  #take(files, known = null) {
    this.known = known;
    for (const [side, file] of Object.entries(files)) {
      URL.revokeObjectURL(this.addresses[side]);
      this.files[side] = file;
      this.addresses[side] = URL.createObjectURL(file);
      this.#preview(side, file);
      this.opened[side] = open(file);
      this.opened[side].then((one) => this.#readable(side, file, one), () => {}); // #align says what is wrong
    }
    $("align").disabled = !this.#ready();
    this.#say("");
    if (this.#ready()) this.#align();
  }

  #ready() {
    return Boolean(this.files.a && this.files.b);
  }

  #preview(side, file) {
    const place = document.querySelector(`.drop[data-side="${side}"] .preview`);
    const image = html("img", { src: this.addresses[side], alt: "" });
    image.addEventListener("error", () => place.replaceChildren(html("span", {}, "?")));
    place.replaceChildren(image);
    $(`name-${side}`).textContent = `${file.name}, ${size(file.size)}`;
  }

  // What came back from the server is shown in the place of what the browser cannot show.
  #readable(side, file, { file: shown, original }) {
    if (!original || this.files[side] !== file) return;
    URL.revokeObjectURL(this.addresses[side]);
    this.addresses[side] = URL.createObjectURL(shown);
    this.#preview(side, file);
  }

  async #example() {
    $("example").disabled = true;
    try {
      const { a, b, matrix } = await example((await this.models).photographs);
      this.#take({ a, b }, matrix);
    } catch (error) {
      this.#say(error.message);
    }
    $("example").disabled = false;
  }

  async #align() {
    const { a, b } = this.files;
    this.running?.abort();
    const mine = (this.running = new AbortController());
    this.#busy(true);
    try {
      const sent = await this.#send({ a, b });
      if (this.running !== mine) return undefined;
      const answer = await estimate(sent.a, sent.b, $("model").value, sent.factor, mine.signal);
      this.#show(answer);
    } catch (error) {
      if (error.name === "AbortError") return undefined;
      this.#say(named(error.message));
    }
    if (this.running === mine) this.#busy(false);
    return undefined;
  }

  // The files to send: as they are where that is possible, else both made smaller by the same whole number.
  async #send(files) {
    const sides = Object.keys(files);
    const ready = await Promise.allSettled(sides.map((side) => this.opened[side]));
    const failed = ready.findIndex(({ status }) => status === "rejected");
    if (failed >= 0) throw new Error(ready[failed].reason.message.replace(/^picture(?=[: ])/, sides[failed]));
    const opened = ready.map(({ value }) => value);
    const factor = reduction(...opened.map(({ size: one }) => one));
    if (factor === 1 && fits(files.a, files.b)) return { ...files, factor };
    const [a, b] = await Promise.all(opened.map((one) => reduced(one, factor)));
    if (!fits(a, b)) throw new Error(`The two pictures have ${size(a.size + b.size)} together even when made smaller.`);
    return { a, b, factor };
  }

  #busy(working) {
    $("result").classList.toggle("working", working);
    $("align").textContent = working ? "Aligning …" : "Align";
    if (working) $("use-live").textContent = "Aligning.";
  }

  #show(answer) {
    const { aligned_png: picture, ...numbers } = answer;
    const aligned = URL.createObjectURL(decode(picture));
    URL.revokeObjectURL(this.addresses.aligned);
    URL.revokeObjectURL(this.addresses.json);
    Object.assign(this.addresses, { aligned, json: URL.createObjectURL(new Blob([JSON.stringify(numbers, null, 1)], { type: "application/json" })) });
    this.matrix = answer.matrix;
    this.#say("");
    $("result").hidden = false;
    this.viewer.show({ ...answer, ...this.addresses, matrix: answer.matrix.flat() });
    $("save-picture").href = aligned;
    $("save-json").href = this.addresses.json;
    this.#numbers(answer);
  }

  #numbers(answer) {
    const { confidence } = answer;
    const word = answer.confidence_words ?? words(confidence);
    const facts = this.#facts(answer);
    meter($("trust"), confidence);
    $("trust-text").textContent = `${words(confidence)}, ${confidence.toFixed(2)}`;
    $("advice").textContent = word.length > 12 ? word : confidence < 0.5 ? ADVICE : "";
    definitions($("facts"), facts);
    $("matrix").replaceChildren(...answer.matrix.map((row) => html("tr", {}, ...row.map((value) => html("td", {}, number(value))))));
    $("use-live").textContent = `Aligned. ${facts.map((pair) => pair.join(": ")).join("; ")}. Confidence ${words(confidence)}.`;
  }

  #facts({ parameters: p, model, matches, inliers, milliseconds, matrix, size_a: [height, width] }) {
    const way = (value, forward, back) => `${Math.abs(value).toFixed(2)} px ${value >= 0 ? forward : back}`;
    const all = [
      ["shift", `${way(p.shift_x, "right", "left")}, ${way(p.shift_y, "down", "up")}`],
      ["angle", `${Math.abs(p.angle).toFixed(2)}°${Math.abs(p.angle) < 0.005 ? "" : p.angle > 0 ? " clockwise" : " counterclockwise"}`],
      ["scale", p.scale.toFixed(4)],
      ["shear", signed(p.shear ?? 0)],
      ["perspective", `${signed(p.perspective_x ?? 0)} across, ${signed(p.perspective_y ?? 0)} down`],
    ];
    const count = { translation: 1, euclidean: 2, similarity: 3, affine: 4, projective: 5 }[model] ?? 5;
    const facts = all.slice(0, Math.max(count, 3));
    if (matches) facts.push(["motions", `${inliers.toLocaleString("en")} of ${matches.toLocaleString("en")} agree`]);
    if (this.known) facts.push(["true error", `${cornerError(matrix.flat(), this.known, width, height).toFixed(2)} px at the corners`]);
    facts.push(["time", `${Math.round(milliseconds)} ms`]);
    return facts;
  }

  async #copy() {
    await navigator.clipboard.writeText(JSON.stringify(this.matrix)).catch(() => select($("matrix")));
    $("copy").textContent = "Copied";
    setTimeout(() => { $("copy").textContent = "Copy"; }, 1500);
  }

  #say(text) {
    $("use-message").textContent = text;
    $("use-message").hidden = !text;
    if (!text) return;
    // What was found before does not belong to these pictures.
    $("use-live").textContent = "";
    $("result").hidden = true;
  }
}

// The server names the fields of the form; people know them by their labels.
const named = (text) => text.replace(/^[ab](?=[: ])/, (field) => (field === "a" ? "First picture" : "Second picture"));

// The mean distance between where two matrices map the corners.
function cornerError(H, truth, width, height) {
  const ends = [[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]];
  const off = (p) => Math.hypot(...apply(H, p).map((value, n) => value - apply(truth, p)[n]));
  return ends.reduce((sum, p) => sum + off(p), 0) / ends.length;
}

function select(node) {
  getSelection().selectAllChildren(node);
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(4)}`;
