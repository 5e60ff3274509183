// Before the first paint, so that no theme flashes: the one that was chosen, or the system's.
"use strict";
const system = matchMedia("(prefers-color-scheme: dark)");
function nameTheme() {
  let chosen = null;
  try {
    chosen = localStorage.getItem("theme");
  } catch {
    // Storage may be forbidden; the system's preference then counts.
  }
  if (chosen !== "light" && chosen !== "dark") chosen = system.matches ? "dark" : "light";
  document.documentElement.dataset.theme = chosen;
  document.dispatchEvent(new Event("themechange"));
}
system.addEventListener("change", nameTheme);
nameTheme();
