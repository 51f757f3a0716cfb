// One slider per parameter, and below it on the same axis the estimate of each network, and the refined one.

import { ESTIMATES, html, label } from "./draw.js";

const NAMES = {
  shift_x: "shift to the right", shift_y: "shift down", angle: "angle, clockwise", scale_x: "width",
  scale_y: "height", a11: "a₁₁: wider", a12: "a₁₂: slant", a21: "a₂₁: climb", a22: "a₂₂: taller",
  p1: "p₁: tilt across", p2: "p₂: tilt down",
};
const UNITS = { pixels: "px", degrees: "°" };

export class Parameters {
  // `changed(z)` is called for every move of a slider.
  constructor(node, changed) {
    Object.assign(this, { node, changed, rows: [], z: [] });
  }

  build(parameters, shipped) {
    this.rows = parameters.map((parameter, n) => this.#row(parameter, n, shipped));
    this.node.dataset.count = parameters.length;
    this.node.replaceChildren(...this.rows.map((row) => row.node));
  }

  // Clamps z to the ranges and shows it; returns what is shown.
  set(z) {
    this.z = this.rows.map(({ parameter: { low, high } }, n) => Math.min(Math.max(z[n], low), high));
    this.rows.forEach((row, n) => {
      row.slider.value = this.z[n];
      row.output.textContent = row.say(this.z[n]);
      row.slider.setAttribute("aria-valuetext", row.say(this.z[n]));
      for (const lane of Object.values(row.lanes)) lane.truth.style.left = `${row.share(this.z[n])}%`;
    });
    return this.z;
  }

  show(answer) {
    this.rows.forEach((row, n) => {
      const truth = row.share(answer.truth?.[n] ?? this.z[n]);
      for (const [who, lane] of Object.entries(row.lanes)) {
        const value = answer.networks[who]?.z[n];
        if (value === undefined) continue;
        const share = row.share(value);
        const place = Math.min(Math.max(share, 0), 100);
        lane.node.classList.toggle("outside", share !== place);
        lane.mark.style.left = `${place}%`;
        lane.off.style.left = `${Math.min(place, truth)}%`;
        lane.off.style.width = `${Math.abs(place - truth)}%`;
        lane.value.textContent = row.say(value);
      }
    });
  }

  #row(parameter, n, shipped) {
    const { low, high, name } = parameter;
    const step = 10 ** Math.floor(Math.log10((high - low) / 50)); // whole degrees, tenths of pixels
    const unit = UNITS[parameter.unit] ?? "";
    const digits = high - low < 0.1 ? 4 : high - low < 5 ? 2 : 1;
    const plain = (value) => value.toFixed(digits).replace(/^-(?=[0.]*$)/, "").replace("-", "−");
    const say = (value) => `${plain(value)}${unit === "px" ? " px" : unit}`;
    const share = (value) => (100 * (value - low)) / (high - low);
    const id = `z-${name}`;
    const slider = html("input", { type: "range", id, min: low, max: high, step: "any" });
    slider.dataset.step = step;
    const output = html("output", { htmlFor: id });
    const lanes = Object.fromEntries(ESTIMATES.filter((who) => shipped.includes(who)).map((who) => [who, lane(who)]));
    const edge = (value, side) => html("span", { class: `edge ${side}`, "aria-hidden": "true" }, String(value).replace("-", "−"));
    const node = html("div", { class: "parameter" },
      html("label", { htmlFor: id }, NAMES[name] ?? name), output, edge(low, "low"), slider, edge(high, "high"),
      ...Object.values(lanes).flatMap(({ who, node: track, value }) => [who, track, value]));
    slider.addEventListener("input", () => {
      // "any" keeps what handles and chance set exactly; the slider itself goes in steps.
      const value = Math.round(Number(slider.value) / step) * step;
      this.changed(this.z.map((old, m) => (m === n ? value : old)));
    });
    slider.addEventListener("keydown", (event) => {
      const way = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1, PageUp: 10, PageDown: -10 }[event.key];
      if (!way) return;
      event.preventDefault();
      this.changed(this.z.map((old, m) => (m === n ? (Math.round(old / step) + way) * step : old)));
    });
    return { node, parameter, slider, output, lanes, say, share };
  }
}

function lane(name) {
  const truth = html("span", { class: "true" });
  const off = html("span", { class: "off" });
  const mark = html("span", { class: `mark ${name}` });
  return {
    who: html("span", { class: `who ${name}` }, label(name)),
    node: html("span", { class: `lane who ${name}` }, truth, off, mark),
    value: html("span", { class: `value ${name}` }, "–"),
    truth, off, mark,
  };
}
