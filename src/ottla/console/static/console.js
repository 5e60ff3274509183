// The console's few moving parts. Text from the cluster only ever reaches the page as text, or as
// HTML that the server escaped.
"use strict";

const remembered = {
  get(name) { try { return localStorage.getItem(name); } catch { return null; } },
  set(name, value) { try { localStorage.setItem(name, value); } catch { /* forbidden: forget */ } },
};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];

// --- Pulse: one stream per visible tab says when the cluster was looked at again. Hidden tabs
// close theirs, as a browser opens only six connections to a server. A console that is gone is told:
// a page that merely stood still would look as if all were well.
const LOST_AFTER_MS = 3000;
customElements.define("live-pulse", class extends HTMLElement {
  connectedCallback() {
    this.onVisible = () => (document.hidden ? this.close() : this.open());
    document.addEventListener("visibilitychange", this.onVisible);
    this.onVisible();
  }
  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.onVisible);
    this.close();
  }
  open() {
    if (this.source) return;
    this.source = new EventSource(this.getAttribute("src"));
    this.source.addEventListener("open", () => this.found());
    this.source.addEventListener("tick", () => document.body.dispatchEvent(new CustomEvent("tick")));
    this.source.addEventListener("error", () => {
      this.losing ??= setTimeout(() => this.tell(true), LOST_AFTER_MS);
      // A browser gives up on an answer that is no stream; a console that starts again may send one.
      if (this.source?.readyState === EventSource.CLOSED) {
        this.source = null;
        setTimeout(() => { if (!document.hidden) this.open(); }, LOST_AFTER_MS);
      }
    });
  }
  close() { this.source?.close(); this.source = null; clearTimeout(this.losing); this.losing = null; }
  found() { clearTimeout(this.losing); this.losing = null; this.tell(false); }
  tell(isLost) {
    one(".banner", this).hidden = !isLost;
    document.body.toggleAttribute("data-lost", isLost);
  }
});

// --- Times: absolute in the reader's zone (or UTC), relative where it says so.
const zone = () => remembered.get("zone") || "local";
const two = (n, width = 2) => String(n).padStart(width, "0");
function clock(date) {
  const utc = zone() === "utc";
  const get = (part) => (utc ? date[`getUTC${part}`]() : date[`get${part}`]());
  return `${get("FullYear")}-${two(get("Month") + 1)}-${two(get("Date"))} ` +
    `${two(get("Hours"))}:${two(get("Minutes"))}:${two(get("Seconds"))}.${two(get("Milliseconds"), 3)}`;
}
function ago(date) {
  const seconds = Math.max(0, (Date.now() - date) / 1000);
  if (seconds < 3) return "now";
  for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "m"], [1, "s"]])
    if (seconds >= size) return `${Math.floor(seconds / size)}${unit} ago`;
}
function showTimes(root = document) {
  for (const time of all("time[data-moment]", root)) {
    const date = new Date(time.dateTime);
    if (isNaN(date)) continue;
    const text = clock(date);
    if (time.textContent !== text) time.textContent = text;
    time.title = `${ago(date)} · ${time.dateTime}`;
  }
  for (const time of all("time[data-ago]", root)) {
    const date = new Date(time.dateTime);
    if (isNaN(date)) continue;
    const text = ago(date);
    if (time.textContent !== text) time.textContent = text;
    time.title = clock(date);
  }
}
function showZone() {
  for (const label of all("[data-zone-label]")) label.textContent = zone() === "utc" ? "UTC" : "local";
  showTimes();
}
// A time without a zone means the one that the page shows; the server is told which that is.
const BARE_TIME = /^\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?)?$/;
function withZone(text) {
  const bare = text.trim();
  if (!BARE_TIME.test(bare)) return text;
  const whole = bare.length === 10 ? `${bare}T00:00` : bare.replace(" ", "T");
  if (zone() === "utc") return `${whole}Z`;
  const minutes = -new Date(whole).getTimezoneOffset();
  return `${whole}${minutes < 0 ? "-" : "+"}${two(Math.floor(Math.abs(minutes) / 60))}:${two(Math.abs(minutes) % 60)}`;
}

// --- Charts: uPlot over the history that the console keeps.
const TIME_STEPS_S = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600];
customElements.define("time-chart", class extends HTMLElement {
  connectedCallback() {
    this.onTick = () => this.load();
    this.onTheme = () => this.draw();
    document.body.addEventListener("tick", this.onTick);
    document.addEventListener("themechange", this.onTheme);
    this.sizes = new ResizeObserver(() => this.resize());
    this.sizes.observe(this);
    this.load();
  }
  disconnectedCallback() {
    document.body.removeEventListener("tick", this.onTick);
    document.removeEventListener("themechange", this.onTheme);
    this.sizes.disconnect();
    this.plot?.destroy();
    this.plot = null;
  }
  async load() {
    if (document.hidden || this.loading) return;
    this.loading = true;
    try {
      const answer = await fetch(this.getAttribute("src"));
      if (answer.ok) {
        this.history = await answer.json();
        if (this.plot) this.plot.setData(this.columns()); else this.draw();
        this.tell();
      }
    } catch { /* the next tick tries again */ } finally { this.loading = false; }
  }
  columns() { return [this.history.times, ...this.history.series.map((s) => s.values)]; }
  resize() { if (this.plot) this.plot.setSize({ width: this.clientWidth, height: this.clientHeight }); }
  format(value) {
    if (value == null) return "–";
    const unit = this.getAttribute("unit") || "";
    for (const [size, letter] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(value) >= size) return `${(value / size).toFixed(value / size >= 100 ? 0 : 1)}${letter}${unit}`;
    return `${Number.isInteger(value) || value >= 100 ? Math.round(value) : value.toFixed(1)}${unit}`;
  }
  tell() {
    const parts = this.history.series.map((s) => `${s.label} ${this.format(s.values.at(-1))}`);
    this.setAttribute("role", "img");
    this.setAttribute("aria-label", `${this.getAttribute("label") || "Chart"}: ${parts.join(", ")}`);
    for (const [index, series] of this.history.series.entries()) {
      const target = one(`[data-newest="${this.id}-${index}"]`);
      if (target) target.textContent = this.format(series.values.at(-1));
    }
  }
  draw() {
    if (!this.history || !window.uPlot) return;
    this.plot?.destroy();
    this.textContent = "";
    const axis = { stroke: css("--ink-3"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false }, font: `11px ${css("--sans")}`, size: 46, gap: 6 };
    const options = {
      width: this.clientWidth, height: this.clientHeight,
      padding: [8, 26, 0, 0],
      legend: { show: false },
      cursor: { points: { size: 6 }, y: false, drag: { x: false, y: false } },
      scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.12 : 1] } },
      axes: [
        { ...axis, size: 26, grid: { show: false }, space: 80, incrs: TIME_STEPS_S, values: (_p, ticks, _axis, _space, step) => ticks.map((t) => clock(new Date(t * 1000)).slice(11, step < 60 ? 19 : 16)) },
        { ...axis, space: 34, values: (_p, ticks) => ticks.map((t) => this.format(t).replace(".0", "")) },
      ],
      series: [{}, ...this.history.series.map((series, index) => {
        const colour = css(`--chart-${index % 5 + 1}`);
        return { label: series.label, stroke: colour, width: 1.6, points: { show: false }, fill: index === 0 ? colour + "1c" : undefined, spanGaps: false };
      })],
      hooks: { setCursor: [(plot) => this.point(plot)] },
    };
    this.plot = new uPlot(options, this.columns(), this);
    this.tip = document.createElement("div");
    this.tip.className = "chart-tip";
    this.append(this.tip);
  }
  point(plot) {
    if (!this.tip) return;
    this.tip.textContent = "";
    const at = plot.cursor.idx;
    if (at == null) return;
    const add = (text, colour) => {
      const span = document.createElement("span");
      if (colour) span.className = colour;
      span.textContent = text;
      this.tip.append(span);
    };
    add(clock(new Date(this.history.times[at] * 1000)).slice(11, 19));
    this.history.series.forEach((s, index) => add(this.format(s.values[at]), `c${index % 5 + 1}`));
  }
});

// --- Live tail: rows as they are written, each of them drawn, at most as many as can be watched.
// Rows come five times a second and are drawn over the frames between; what a browser is too slow to
// draw, or a hidden tab does not, is counted as skipped. While it runs, only as many as a screen
// holds are in the page, as what nobody sees costs frames; those before them come back when it stops.
const TAIL_ROWS_MAX = 500;
const TAIL_ROW_PX = 29;
const TAIL_WAITING_MAX = 1000;
const TAIL_SPREAD_MS = 180;
customElements.define("live-tail", class extends HTMLElement {
  connectedCallback() {
    this.button = one("[data-tail-toggle]", this);
    this.label = one("[data-tail-label]", this);
    this.status = one("[data-tail-status]", this);
    this.said = one("[data-tail-said]", this);
    this.trouble = one("[data-tail-trouble]", this);
    this.body = one("[data-tail-rows]", this);
    this.button.addEventListener("click", () => this.toggle());
    this.button.setAttribute("aria-pressed", "false");
    this.seen = 0; this.drawn = 0; this.skipped = 0;
    this.recent = [];
    this.waiting = []; // oldest first
    this.older = []; // newest first
    this.onVisible = () => {
      if (!this.isOn) return;
      if (document.hidden) this.disconnect(); else this.connect();
    };
    document.addEventListener("visibilitychange", this.onVisible);
  }
  disconnectedCallback() {
    document.removeEventListener("visibilitychange", this.onVisible);
    this.stop();
  }
  toggle() { this.isOn ? this.stop() : this.start(); }
  start() {
    this.isOn = true;
    if (!this.cursor) this.body.textContent = "";
    one(".no-rows", this.body)?.remove();
    this.classList.add("running");
    this.button.setAttribute("aria-pressed", "true");
    this.label.textContent = "Stop";
    this.status.textContent = "connecting…";
    this.said.textContent = "Live tail started";
    this.started = performance.now();
    const page = one("[data-page-status]", this);
    if (page) page.textContent = "";
    this.connect();
  }
  connect() {
    if (this.source) return;
    const address = new URL(this.getAttribute("src"), location.href);
    if (this.cursor) address.searchParams.set("cursor", this.cursor);
    this.source = new EventSource(address);
    this.source.addEventListener("open", () => this.tellTrouble("")); // the console tells what lasts
    this.source.addEventListener("records", (event) => this.take(event.data));
    this.source.addEventListener("trouble", (event) => this.tellTrouble(event.data));
    // The browser would ask again from the end; go on from where the last event left off.
    this.source.addEventListener("error", () => {
      this.disconnect();
      this.tellTrouble("The console does not answer; trying again.");
      this.again = setTimeout(() => this.connect(), 1000);
    });
  }
  disconnect() {
    clearTimeout(this.again);
    this.source?.close();
    this.source = null;
  }
  stop() {
    if (!this.isOn) return;
    this.isOn = false;
    this.disconnect();
    cancelAnimationFrame(this.frame);
    this.frame = null;
    this.draw(this.waiting.splice(0));
    this.classList.remove("running");
    for (const row of this.older) showTimes(row);
    this.body.append(...this.older.splice(0));
    this.button.setAttribute("aria-pressed", "false");
    this.label.textContent = "Resume";
    this.tellTrouble("");
    this.tell(true);
    this.said.textContent = `Live tail stopped: ${this.status.textContent}`;
  }
  tellTrouble(text) {
    if (this.trouble.textContent === text) return;
    this.trouble.textContent = text;
    this.trouble.hidden = !text;
    if (text) this.said.textContent = text;
  }
  take(data) {
    const line = data.indexOf("\n");
    const [passed, , skipped, cursor] = data.slice(0, line).split(" ");
    this.seen += +passed; this.skipped += +skipped; this.cursor = cursor;
    const now = performance.now();
    this.recent.push([now, +passed]);
    while (this.recent.length && now - this.recent[0][0] > 3000) this.recent.shift();
    const template = document.createElement("template");
    template.innerHTML = data.slice(line + 1); // escaped by the server
    this.waiting.push(...[...template.content.children].reverse());
    this.drop(this.waiting.length - TAIL_WAITING_MAX);
    if (!this.frame) { this.painted = now; this.frame = requestAnimationFrame((at) => this.paint(at)); }
    if (!this.seen) this.status.textContent = "waiting for messages…";
  }
  drop(count) {
    if (count <= 0) return;
    this.waiting.splice(0, count);
    this.skipped += count;
  }
  paint(at) {
    this.frame = null;
    const share = Math.min(1, Math.max(0.05, (at - this.painted) / TAIL_SPREAD_MS));
    this.painted = at;
    const count = Math.min(this.room(), Math.ceil(this.waiting.length * share));
    this.draw(this.waiting.splice(0, count));
    if (this.waiting.length) this.frame = requestAnimationFrame((next) => this.paint(next));
    if (this.seen) this.tell(false);
  }
  room() { return Math.ceil(innerHeight / TAIL_ROW_PX) + 2; }
  draw(rows) {
    for (const row of rows) showTimes(row);
    this.body.prepend(...rows.reverse());
    this.drawn += rows.length;
    const surplus = [...this.body.children].slice(this.room());
    for (const row of surplus) row.remove();
    this.older.unshift(...surplus);
    this.older.length = Math.min(this.older.length, TAIL_ROWS_MAX - this.body.children.length);
  }
  tell(isStopped) {
    const now = performance.now();
    clearTimeout(this.telling);
    if (!isStopped && this.told && now - this.told < 400) {
      // The last of a burst is told as well.
      this.telling = setTimeout(() => { if (this.isOn) this.tell(false); }, 400);
      return;
    }
    this.told = now;
    const span = Math.max(1, Math.min(3, (now - this.started) / 1000));
    const rate = Math.round(this.recent.reduce((sum, [, count]) => sum + count, 0) / span);
    const parts = [`${this.seen.toLocaleString("en")} message${this.seen === 1 ? "" : "s"}`];
    if (!isStopped) parts.push(`${rate.toLocaleString("en")}/s`);
    if (this.skipped) parts.push(`${this.skipped.toLocaleString("en")} skipped, more than can be shown`);
    if (isStopped) parts.push("stopped");
    this.status.textContent = parts.join(" · ");
  }
});

// --- Messages open in place.
async function toggleRecord(row) {
  const table = row.closest("[data-records]");
  const button = one("button[aria-expanded]", row);
  if (row.nextElementSibling?.classList.contains("detail")) {
    row.nextElementSibling.remove();
    button?.setAttribute("aria-expanded", "false");
    return;
  }
  button?.setAttribute("aria-expanded", "true");
  const detail = document.createElement("tr");
  detail.className = "detail";
  const cell = detail.insertCell();
  cell.colSpan = row.cells.length;
  row.after(detail);
  const address = new URL(table.dataset.records, location.href);
  address.searchParams.set("partition", row.dataset.partition);
  address.searchParams.set("offset", row.dataset.offset);
  try {
    const answer = await fetch(address);
    cell.innerHTML = await answer.text(); // escaped by the server
    showTimes(cell);
  } catch {
    cell.textContent = "The console does not answer.";
  }
}
customElements.define("copy-button", class extends HTMLElement {
  connectedCallback() {
    const button = one("button", this);
    button?.addEventListener("click", async () => {
      // A payload that is shown in part is copied whole.
      const address = this.getAttribute("src");
      const text = address ? await (await fetch(address)).text() : one("template", this).content.textContent;
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1200);
    });
  }
});

// --- Rows by keyboard.
const rowsOf = () => all("[data-rows] tbody > tr:not(.detail):not(.no-rows)");
function moveRow(step) {
  const rows = rowsOf();
  if (!rows.length) return;
  // Where one is, is where the focus is: it outlives an update, which a mark on the row would not.
  const at = rows.indexOf(document.activeElement?.closest("tr"));
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))];
  next.scrollIntoView({ block: "nearest" });
  (one("a, button", next) || next).focus({ preventScroll: true });
}

// --- Jump to anything.
const palette = {
  async search(text) {
    const answer = await fetch(`/api/v1/search?q=${encodeURIComponent(text)}`);
    if (!answer.ok || text !== one("#palette-input").value) return;
    const { results } = await answer.json();
    const list = one("#palette-list");
    list.textContent = "";
    results.forEach((found, index) => {
      const item = document.createElement("li");
      item.id = `palette-${index}`;
      item.setAttribute("role", "option");
      const link = document.createElement("a");
      link.href = found.href;
      link.tabIndex = -1;
      const name = document.createElement("span");
      name.textContent = found.name;
      const kind = document.createElement("span");
      kind.className = "quiet";
      kind.textContent = found.kind;
      link.append(name, kind);
      item.append(link);
      list.append(item);
    });
    one("#palette-input").setAttribute("aria-expanded", String(results.length > 0));
    this.choose(0);
  },
  open() {
    const dialog = one("#palette");
    if (dialog.open) return;
    dialog.showModal();
    const input = one("#palette-input");
    input.value = "";
    input.focus();
    this.search("");
  },
  choose(index) {
    const input = one("#palette-input");
    const items = all("#palette-list li");
    items.forEach((item, at) => item.setAttribute("aria-selected", String(at === index)));
    if (!items.length) return input.removeAttribute("aria-activedescendant");
    input.setAttribute("aria-activedescendant", items[index].id);
    items[index].scrollIntoView({ block: "nearest" });
  },
  move(step) {
    const items = all("#palette-list li");
    if (!items.length) return;
    const at = items.findIndex((item) => item.getAttribute("aria-selected") === "true");
    this.choose((at + step + items.length) % items.length);
  },
  go() {
    const link = one('#palette-list li[aria-selected="true"] a');
    if (link) location.href = link.href;
  },
};

function toggleTheme() {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  remembered.set("theme", root.dataset.theme);
  document.dispatchEvent(new Event("themechange"));
}

let isGoing = false;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) {
    if ((event.ctrlKey || event.metaKey) && event.key === "k") { event.preventDefault(); palette.open(); }
    return;
  }
  if (event.target.id === "palette-input") {
    if (event.key === "ArrowDown") { event.preventDefault(); palette.move(1); }
    if (event.key === "ArrowUp") { event.preventDefault(); palette.move(-1); }
    if (event.key === "Enter") { event.preventDefault(); palette.go(); }
    // A search field would only empty itself, and want the key once more.
    if (event.key === "Escape") { event.preventDefault(); one("#palette").close(); }
    return;
  }
  if (remembered.get("shortcuts") === "off") return;
  if (event.target.closest?.("input, textarea, select, dialog[open]")) return;
  if (isGoing) {
    isGoing = false;
    const link = one(`[data-go="${CSS.escape(event.key)}"]`);
    if (link) { event.preventDefault(); location.href = link.href; }
    return;
  }
  const keys = {
    "/": () => palette.open(),
    "?": () => one("#help").showModal(),
    g: () => { isGoing = true; setTimeout(() => { isGoing = false; }, 1200); },
    j: () => moveRow(1),
    k: () => moveRow(-1),
    f: () => one("[data-filter]")?.focus(),
    l: () => one("[data-tail-toggle]")?.click(),
    d: toggleTheme,
    "[": () => one("[data-previous]")?.click(),
    "]": () => one("[data-next]")?.click(),
  };
  const action = keys[event.key];
  if (action) { event.preventDefault(); action(); }
});

function blank(row) {
  all("input", row).forEach((input) => { input.value = ""; });
  all("select", row).forEach((select) => { select.selectedIndex = 0; });
}
document.addEventListener("click", (event) => {
  const at = (selector) => event.target.closest(selector);
  if (at("[data-palette]")) palette.open();
  else if (at("[data-help]")) one("#help").showModal();
  else if (at("[data-theme-toggle]")) toggleTheme();
  else if (at("[data-zone]")) { remembered.set("zone", zone() === "utc" ? "local" : "utc"); showZone(); }
  else if (at("[data-dialog]")) document.getElementById(at("[data-dialog]").dataset.dialog)?.showModal();
  else if (at("[data-close]")) at("dialog")?.close();
  else if (at("[data-add-header]")) {
    const list = one("[data-headers]");
    const row = list.lastElementChild.cloneNode(true);
    blank(row);
    list.append(row);
    one("input", row).focus();
  } else if (at("[data-remove-header]")) {
    const row = at(".pair");
    if (row.parentElement.children.length > 1) row.remove();
    else blank(row);
  } else {
    const row = at("[data-records] tbody > tr[data-offset]");
    if (row && !at("a") && !String(getSelection())) toggleRecord(row);
  }
});
document.addEventListener("change", (event) => {
  if (event.target.matches("[data-shortcuts]")) remembered.set("shortcuts", event.target.checked ? "on" : "off");
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
  if (event.target.matches("[data-begin]"))
    for (const label of all("[data-only]", event.target.form)) label.hidden = label.dataset.only !== event.target.value;
  if (event.target.matches("[data-choose]"))
    for (const label of all("[data-only]", event.target.form)) label.hidden = !label.dataset.only.split(" ").includes(event.target.value);
});
document.addEventListener("input", (event) => {
  if (event.target.id === "palette-input") palette.search(event.target.value);
});
document.addEventListener("htmx:afterSettle", (event) => showTimes(event.target));
let pointed = 0;
document.addEventListener("pointermove", () => { pointed = performance.now(); }, { passive: true });
document.addEventListener("htmx:beforeRequest", (event) => {
  if (event.detail.requestConfig.triggeringEvent?.type !== "tick") return;
  // A tab nobody looks at asks for nothing, and rows keep still under a hand that is aiming.
  const isAiming = performance.now() - pointed < 800 && event.detail.elt.matches(":hover") && one("[data-rows]", event.detail.elt);
  if (document.hidden || isAiming) event.preventDefault();
});
document.addEventListener("htmx:configRequest", (event) => {
  for (const field of all("[data-time]", event.detail.elt)) event.detail.parameters[field.name] = withZone(field.value);
});
// A page that is being left takes no further answers: one of them might load it again.
let isLeaving = false;
document.addEventListener("htmx:beforeOnLoad", (event) => {
  if (isLeaving) event.preventDefault();
  else isLeaving = event.detail.xhr.getResponseHeader("HX-Redirect") !== null;
});
addEventListener("pageshow", () => { isLeaving = false; });
// Empty fields have no place in an address that people share.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-messages-form]")) return;
  for (const field of all("[data-time]", event.target)) field.value = withZone(field.value);
  for (const field of event.target.elements)
    if (field.name && (field.value === "" || (field.name === "from" && field.value === "newest") || (field.name === "size" && field.value === "50") || field.closest("[hidden]"))) field.disabled = true;
});
addEventListener("pageshow", () => all("[data-messages-form] :disabled").forEach((field) => { field.disabled = false; }));
one(".tabs [aria-current]")?.scrollIntoView({ inline: "nearest", block: "nearest" });
setInterval(() => showTimes(), 5000);
showZone();
one("[data-shortcuts]").checked = remembered.get("shortcuts") !== "off";
// --- Settings: narrow the list while typing.
function narrow() {
  const input = one("[data-narrow]");
  if (!input) return;
  const wanted = input.value.trim().toLowerCase();
  const onlyChanged = one("[data-only-changed]")?.checked;
  for (const row of all(input.dataset.narrow))
    row.hidden = (wanted && !row.textContent.toLowerCase().includes(wanted)) || (onlyChanged && row.dataset.changed !== "true");
}
document.addEventListener("input", (event) => { if (event.target.matches("[data-narrow]")) narrow(); });
document.addEventListener("change", (event) => { if (event.target.matches("[data-only-changed]")) narrow(); });
