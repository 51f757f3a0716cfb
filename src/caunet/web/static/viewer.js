// Two pictures compared: a slider between them, a blend, their difference, blinking; before and after.

import { apply, corners, invert } from "./geometry.js";

const HINTS = {
  slide: "Move the slider: the first picture on its left, the second on its right.",
  mix: "Half of each: sharp where they match, doubled where they do not.",
  difference: "Black where they agree, bright where they do not; around the second picture, the first shows.",
};

export class Viewer {
  #timer = null;

  constructor($) {
    Object.assign(this, { $, calm: matchMedia("(prefers-reduced-motion: reduce)") });
    $("slide").addEventListener("input", () => this.#divide());
    for (const radio of document.querySelectorAll('[name="view"], [name="state"]')) {
      radio.addEventListener("change", () => this.#update());
    }
    $("blink").addEventListener("click", () => this.#blink());
    this.#drag($("viewer"));
  }

  // a, b, aligned: addresses of pictures; sizes are [height, width]; matrix has nine numbers, from a to b.
  show({ a, b, aligned, size_a, size_b, matrix }) {
    Object.assign(this, { b, aligned, size_a, size_b, matrix });
    this.#stop();
    this.$("view-a").src = a;
    this.$("view-a").width = size_a[1];
    this.$("view-a").height = size_a[0];
    this.$("viewing").style.maxWidth = `${Math.max(size_a[1], Math.min(900, (560 * size_a[1]) / size_a[0]))}px`;
    document.querySelector('[name="state"][value="after"]').checked = true;
    this.#update();
  }

  #update() {
    const view = document.querySelector('[name="view"]:checked').value;
    const after = document.querySelector('[name="state"]:checked').value === "after";
    const image = this.$("view-b");
    this.$("viewer").dataset.view = view;
    this.$("viewer-hint").textContent = HINTS[view];
    this.$("slide").disabled = view !== "slide";
    image.src = after ? this.aligned : this.b;
    image.alt = after ? "Second picture, aligned with the first" : "Second picture as it was given";
    image.style.width = after ? "100%" : `${(100 * this.size_b[1]) / this.size_a[1]}%`;
    image.style.clipPath = after ? this.#covered() : "none";
    this.#divide();
  }

  // Where the aligned second picture has pixels of its own: the outline of b, brought back onto a.
  #covered() {
    const [height, width] = this.size_b;
    const back = invert(this.matrix);
    const outline = corners(0.5).map(([x, y]) => apply(back, [(x + 0.5) * (width - 1), (y + 0.5) * (height - 1)]));
    if (!outline.flat().every(Number.isFinite)) return "none";
    const share = ([x, y]) => `${((100 * (x + 0.5)) / this.size_a[1]).toFixed(3)}% ${((100 * (y + 0.5)) / this.size_a[0]).toFixed(3)}%`;
    return `polygon(${outline.map(share).join(", ")})`;
  }

  #divide() {
    const sliding = this.$("viewer").dataset.view === "slide" && !this.#timer && !this.$("viewer").classList.contains("blinking");
    const place = this.$("slide").value;
    this.$("layer").style.clipPath = sliding ? `inset(0 0 0 ${place}%)` : "none";
    this.$("divider").style.left = `${place}%`;
  }

  // With reduced motion, each press changes the picture once instead of blinking.
  #blink() {
    if (this.calm.matches) {
      const hidden = this.$("viewer").classList.toggle("hide-b");
      this.$("viewer").classList.add("blinking");
      this.$("blink").textContent = hidden ? "Blink (first)" : "Blink (second)";
      return this.#divide();
    }
    if (this.#timer) return this.#stop();
    this.#timer = setInterval(() => this.$("viewer").classList.toggle("hide-b"), 550);
    this.$("viewer").classList.add("blinking");
    this.$("blink").setAttribute("aria-pressed", "true");
    this.$("blink").textContent = "Stop";
    return this.#divide();
  }

  #stop() {
    clearInterval(this.#timer);
    this.#timer = null;
    this.$("viewer").classList.remove("blinking", "hide-b");
    this.$("blink").setAttribute("aria-pressed", "false");
    this.$("blink").textContent = "Blink";
    this.#divide();
  }

  #drag(node) {
    const follow = (event) => {
      if (!event.buttons || node.dataset.view !== "slide") return;
      const box = node.getBoundingClientRect();
      this.$("slide").value = (100 * (event.clientX - box.left)) / box.width;
      this.#stop();
    };
    node.addEventListener("pointerdown", (event) => { node.setPointerCapture(event.pointerId); follow(event); });
    node.addEventListener("pointermove", follow);
    node.addEventListener("dragstart", (event) => event.preventDefault());
  }
}
