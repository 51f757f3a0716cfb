// The tab See: a patch, a transformation, and what three networks infer from the pair.

import { infer, Latest } from "./api.js";
import { Cells, ESTIMATES, gray, html, label, meter, Quads, svg, words } from "./draw.js";
import { Parameters } from "./parameters.js";
import { open, shrunk } from "./pictures.js";
import { Stage } from "./stage.js";

const $ = (id) => document.getElementById(id);
const LARGEST = 512; // an uploaded picture is reduced to the size of the embedded ones before it is sent
const START = {
  translation: [2.5, -1.5], rotation: [24], scaling: [1.3, 0.8], affine: [0.15, -0.25, 0.2, -0.1],
  projective: [0.1, -0.2, 0.25, 0.05, 0.004, -0.006],
};
const STILL = { scaling: 1 };

export class See {
  constructor(models) {
    Object.assign(this, { models, kept: {}, picture: null, photograph: null });
    this.stage = new Stage($("stage"), () => this.#changed());
    this.parameters = new Parameters($("parameters"), (z) => this.#set(z));
    this.quads = new Quads($("quads"), (z) => this.#set(z));
    this.units = new Cells($("units"), 25, { cell: 20, gap: 1 });
    this.factors = { u: new Cells($("u"), 11), v: new Cells($("v"), 11) };
    this.terms = [];
    this.latest = new Latest(infer, (answer) => this.#show(answer), (error) => this.#say(error.message));
    this.#photographs();
    this.#tasks();
    this.#buttons();
  }

  #photographs() {
    const choose = (photo) => {
      Object.assign(this, { photograph: photo, picture: null });
      this.stage.show(photo);
      this.#start(photo);
      this.#changed({ stale: true });
    };
    this.models.photographs.forEach((photo, n) => {
      const radio = html("input", { type: "radio", name: "photograph", value: photo.name, checked: n === 0 });
      radio.setAttribute("aria-label", photo.name.replaceAll("_", " "));
      radio.addEventListener("change", () => choose(photo));
      $("photographs").append(html("label", { title: photo.name.replaceAll("_", " ") }, radio, html("img", { src: photo.thumbnail, alt: "", width: 42, height: 42 })));
    });
    this.photograph = this.models.photographs[0];
    this.stage.show(this.photograph);
    this.#start(this.photograph);
    $("upload").addEventListener("change", (event) => this.#upload(event.target));
  }

  // A first place where there is something to see.
  #start({ name, width, height }) {
    const places = { astronaut: [0.36, 0.22], camera: [0.43, 0.27], chelsea: [0.4, 0.4], coffee: [0.5, 0.4], rocket: [0.5, 0.55] };
    const [x, y] = places[name] ?? [0.5, 0.5];
    this.stage.place(x * width, y * height);
  }

  async #upload(input) {
    const file = input.files[0];
    input.value = "";
    if (!file) return;
    try {
      const own = await shrunk(await open(file), LARGEST);
      URL.revokeObjectURL(this.address);
      Object.assign(this, { picture: own.blob, photograph: null, address: own.url });
      for (const radio of document.getElementsByName("photograph")) radio.checked = false;
      this.stage.show(own);
      this.stage.place(own.width / 2, own.height / 2);
      this.#changed({ stale: true });
    } catch (error) {
      this.#say(`“${file.name}”: ${error.message.replace(/^picture: /, "")}`);
    }
  }

  #tasks() {
    const shipped = (task) => this.models.pretrained[task] ?? [];
    const ready = this.models.tasks.filter((task) => shipped(task.name).length);
    for (const task of this.models.tasks) {
      const radio = html("input", { type: "radio", name: "task", value: task.name, disabled: !shipped(task.name).length });
      radio.addEventListener("change", () => this.#choose(task));
      const title = shipped(task.name).length ? "" : "No network for this task is installed";
      $("tasks").append(html("label", { title }, radio, html("span", {}, task.name)));
    }
    const first = ready.find((task) => task.name === "rotation") ?? ready[0];
    if (!first) return this.#say("No trained networks are installed, so there is nothing to show here; Use may still work.");
    document.querySelector(`#tasks input[value="${first.name}"]`).checked = true;
    this.#choose(first);
  }

  #choose(task) {
    const shipped = this.models.pretrained[task.name] ?? [];
    this.chosen = task;
    const refine = $("refine").checked;
    const shown = refine && shipped.length ? [...shipped, "refined"] : shipped;
    this.parameters.build(task.parameters, shown);
    $("legend").replaceChildren(...["truth", ...ESTIMATES].filter((who) => refine || who !== "refined").map((who) => {
      const here = who === "truth" || shown.includes(who);
      const text = who === "truth" ? "truth" : label(who) + (here ? "" : " (not installed)");
      return html("li", { class: here ? "" : "gone" }, html("span", { class: `mark ${who}` }), text);
    }));
    this.#set(this.kept[task.name] ?? START[task.name] ?? draw(task.parameters, 0), { stale: true });
  }

  #set(z, how) {
    this.kept[this.chosen.name] = this.parameters.set(z);
    this.#changed(how);
  }

  #buttons() {
    $("random").addEventListener("click", () => this.#set(draw(this.chosen.parameters, 0.9)));
    $("refine").addEventListener("change", () => this.#choose(this.chosen));
    $("neutral").addEventListener("click", () => this.#set(this.chosen.parameters.map(() => STILL[this.chosen.name] ?? 0)));
  }

  #changed(how) {
    if (!this.chosen) return;
    const { name } = this.chosen;
    const z = this.kept[name];
    this.stage.draw(name, z);
    this.quads.place(name, z);
    const where = this.picture ? { picture: this.picture } : { photograph: this.photograph.name };
    this.latest.ask({ task: name, z, x: this.stage.x, y: this.stage.y, refine: $("refine").checked, ...where }, how);
  }

  #show(answer) {
    $("see-message").hidden = true;
    gray($("first"), answer.first);
    gray($("second"), answer.second);
    const start = answer.networks.can ?? Object.values(answer.networks)[0];
    if (start?.refined) answer.networks.refined = start.refined;
    this.parameters.show(answer);
    this.quads.show(answer);
    const { winner, responses, confidence } = answer;
    if (winner && responses) this.#competition(answer);
    for (const panel of document.querySelectorAll(".units-panel, .winner-panel")) panel.hidden = !winner;
    meter($("confidence"), confidence);
    $("confidence-text").textContent = `${words(confidence)}, ${confidence.toFixed(2)}`;
    $("timing").textContent = `Computed in ${Math.max(answer.milliseconds, 0.1).toFixed(answer.milliseconds < 10 ? 1 : 0)} ms.`;
    $("parameters").dataset.answered = `${answer.task} ${answer.truth.join(" ")}`;
    this.#announce(answer);
  }

  // Units from left to right in the order of what they prefer; colors say how far each is above what it usually responds.
  #competition({ responses, order, usual, winner: { index, u, v, terms = [] } }) {
    const above = (unit) => Math.max(responses[unit] / usual[unit] - 1, 0);
    const rows = Math.ceil(order.length / this.units.columns);
    const place = order.map((_, n) => (n % rows) * this.units.columns + Math.floor(n / rows));
    const cells = new Array(order.length).fill(0);
    order.forEach((unit, n) => { cells[place[n]] = above(unit); });
    this.units.show(cells, place[order.indexOf(index)]);
    this.factors.u.show(u.flat());
    this.factors.v.show(v.flat());
    this.#terms(terms);
    if (!Math.max(...u.flat())) $("terms-text").textContent = "Its weights are almost zero: this unit fits any pair.";
    const [{ name }] = this.chosen.parameters;
    const times = (responses[index] / usual[index]).toFixed(1);
    $("units-text").textContent =
      `Sorted by the ${name.replace("_", " ")} that they prefer, from low to high. Unit ${index + 1} of ${responses.length} wins, with ${times} times its usual response.`;
  }

  #terms(terms) {
    if (this.terms.length !== terms.length) {
      this.terms = terms.map(() => [new Cells(svg("svg", { class: "cells" }), 11), new Cells(svg("svg", { class: "cells" }), 11)]);
      $("terms").replaceChildren(...this.terms.map((pair) => html("span", {}, ...pair.map((one) => one.node))));
    }
    terms.forEach(({ u, v }, n) => { this.terms[n][0].show(u.flat()); this.terms[n][1].show(v.flat()); });
    $("terms-text").textContent = terms.length ? `Above, the sum; below, its ${terms.length} rank-one terms, u over v.` : "";
  }

  // Not on every move: screen readers announce the answer once the slider rests.
  #announce(answer) {
    const { parameters } = this.chosen;
    clearTimeout(this.pause);
    this.pause = setTimeout(() => {
      const values = (z) => parameters.map(({ name }, n) => `${name.replace("_", " ")} ${z[n].toFixed(2)}`).join(", ");
      const found = Object.entries(answer.networks).map(([who, { z }]) => `${label(who)}: ${values(z)}.`);
      $("see-live").textContent = `True values: ${values(answer.truth)}. ${found.join(" ")} Confidence ${words(answer.confidence)}.`;
    }, 700);
  }

  #say(text) {
    $("see-message").textContent = text;
    $("see-message").hidden = false;
  }
}

// A random z within the fraction `reach` of the ranges.
function draw(parameters, reach) {
  return parameters.map(({ low, high }) => (low + high) / 2 + reach * (Math.random() - 0.5) * (high - low));
}
