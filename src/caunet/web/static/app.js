// The page: four tabs, light or dark, and what the server has to offer.

import { models } from "./api.js";
import { See } from "./see.js";
import { Stack } from "./stack.js";
import { Use } from "./use.js";
import { Volumes } from "./volumes.js";

const tabs = [...document.querySelectorAll('[role="tab"]')];

function select(tab, { focus = false } = {}) {
  for (const one of tabs) {
    const chosen = one === tab;
    one.setAttribute("aria-selected", chosen);
    one.tabIndex = chosen ? 0 : -1;
    document.getElementById(one.getAttribute("aria-controls")).hidden = !chosen;
  }
  if (focus) tab.focus();
  history.replaceState(null, "", `#${tab.getAttribute("aria-controls")}`);
}

function listen() {
  tabs.forEach((tab, n) => {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", ({ key }) => {
      const to = { ArrowRight: n + 1, ArrowLeft: n - 1, Home: 0, End: tabs.length - 1 }[key];
      if (to !== undefined) select(tabs.at(to % tabs.length), { focus: true });
    });
  });
  const named = tabs.find((tab) => `#${tab.getAttribute("aria-controls")}` === location.hash);
  if (named) select(named);
}

// Follows the system until the button is pressed; the choice is not stored.
function theme() {
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const dark = () => (document.documentElement.dataset.theme ?? (system.matches ? "dark" : "light")) === "dark";
  const label = () => {
    button.textContent = dark() ? "Light" : "Dark";
    button.setAttribute("aria-label", `Switch to ${dark() ? "light" : "dark"} colors`);
  };
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = dark() ? "light" : "dark";
    label();
  });
  system.addEventListener("change", label);
  label();
}

async function start() {
  listen();
  theme();
  const offered = models();
  new Stack(offered);
  new Volumes();
  new Use(offered); // listens at once: a click must not be lost because the server is slow to answer
  try {
    new See(await offered);
  } catch (error) {
    for (const id of ["see-message", "use-message"]) {
      document.getElementById(id).textContent = error.message;
      document.getElementById(id).hidden = false;
    }
  }
}

start();
