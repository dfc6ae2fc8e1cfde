// Elements, numbers as people read them, and scales. Text is always set as text, never as markup.

// What draws a section of the page puts itself here: draw, resize if it must be drawn anew for another
// width, once if it listens to controls of its own, and filled if there is nothing to draw before the
// first candidate.
const SECTIONS = [];

const byId = (id) => document.getElementById(id);

// Without labels networks are judged by how far their outputs drift from the original's.
const DRIFT = [[/ with [\d.]+ points more test error than the original \(([\d.,]+\s%) against [^)]*\)/g, " at a drift of $1"],
  [/test error, (fine-tuned|refitted|untrained)/gi, "drift on inputs held out"], [/Test error/g, "Drift held out"], [/test error/g, "drift"],
  [/\bError\b/g, "Drift"], [/\berror\b/g, "drift"], [/Most accurate/g, "Least drift"]];
const worded = (text) => (page.data.by_drift ? DRIFT.reduce((found, [before, after]) => found.replace(before, after), text) : text);
const wordedChild = (child) => (typeof child === "string" ? worded(child) : child);

function make(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    // Through the style object: the page's security policy forbids style attributes.
    else if (name === "style") for (const [key, entry] of Object.entries(value)) element.style.setProperty(key, entry);
    else element.setAttribute(name, name === "aria-label" ? worded(value) : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined).map(wordedChild));
  return element;
}
const html = (tag, attributes, ...children) => make(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  make(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Fill a container anew and give the focus back to the element with the same key.
function fill(container, ...children) {
  const active = container.contains(document.activeElement) ? document.activeElement.getAttribute("data-key") : null;
  container.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  if (active === null) return;
  const again = [...container.querySelectorAll("[data-key]")].find((one) => one.getAttribute("data-key") === active);
  if (again) again.focus({ preventScroll: true });
}

function count(value) {
  const steps = [[1e12, " T"], [1e9, " G"], [1e6, " M"], [1e3, " k"]];
  for (const [size, letter] of steps) if (Math.abs(value) >= size) return digits(value / size) + letter;
  return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
}
const digits = (value) => value.toFixed(value < 10 ? 2 : 1);
const share = (value, places = 1) => (value * 100).toFixed(places) + " %";
const missing = (value) => value === null || value === undefined;
// Errors are shares of 1 unless the user's own task measures something else.
const errorText = (value, places = 1) =>
  missing(value) ? "–" : page.data.error_is_share ? share(value, places) : String(Number(value.toPrecision(4)));

// As `count`, without zeros at the end: for ticks, which are round.
const shortCount = (value) => count(value).replace(/(\.\d*?)0+(?= |$)/, "$1").replace(/\.(?= |$)/, "");

function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = Math.pow(10, Math.floor(Math.log10(rough)));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough * 0.999);
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + step * 1e-6; index++) found.push(index * step);
  return found;
}
const scale = (low, high, from, to) => (value) => from + ((value - low) / (high - low || 1)) * (to - from);

// The axes of a chart: grid, ticks and names with units.
function axes(box, x, y, names) {
  const parts = [];
  for (const tick of y.ticks || ticks(y.low, y.high, Math.max(3, (box.bottom - box.top) / 52))) {
    parts.push(svg("line", { class: "grid", x1: box.left, x2: box.right, y1: y.at(tick), y2: y.at(tick) }));
    parts.push(svg("text", { x: box.left - 8, y: y.at(tick) + 4, "text-anchor": "end" }, y.text(tick)));
  }
  for (const tick of ticks(x.low, x.high, Math.max(3, (box.right - box.left) / 110))) {
    if (x.whole && !Number.isInteger(tick)) continue;
    parts.push(svg("line", { class: "grid", x1: x.at(tick), x2: x.at(tick), y1: box.top, y2: box.bottom }));
    parts.push(svg("text", { x: x.at(tick), y: box.bottom + 18, "text-anchor": "middle" }, x.text(tick)));
  }
  parts.push(svg("line", { class: "axis", x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom }));
  parts.push(svg("text", { x: box.left - 44, y: box.top - 22 }, names.y));
  parts.push(svg("text", { x: box.right, y: box.bottom + 38, "text-anchor": "end" }, names.x));
  return parts;
}

// The roles that candidates may hold, in the order they are shown; no run need have all of them. All targets look alike.
const ROLES = ["heavy", "knee", "light", "target"];
const kindOf = (role) => role.replace(/^target-\d+$/, "target");
const SHAPES = {
  heavy: "M-6-6H6V6H-6Z", knee: "M0-8L8 0L0 8L-8 0Z", light: "M0-8L8 6H-8Z", target: "M-8-6H8L0 8Z", original: "M-7 0H7M0-7V7",
};
function marker(role, attributes) {
  const kind = kindOf(role);
  const color = `var(--${SHAPES[kind] ? kind : "accent"})`;
  const look = role === "original" ? { stroke: color, "stroke-width": 2.5, fill: "none" } : { fill: color };
  return svg("path", { d: SHAPES[kind] || "M-6 0A6 6 0 1 0 6 0A6 6 0 1 0-6 0Z", ...look, ...attributes });
}
const icon = (role) =>
  svg("svg", { width: 18, height: 18, viewBox: "-9 -9 18 18", "aria-hidden": "true" }, marker(role));

// Put labels beside their points where they leave the chart nowhere and cover as little as can be.
function placeLabels(wanted, box, spots) {
  const taken = wanted.map(({ x, y }) => ({ left: x - 9, right: x + 9, top: y - 9, bottom: y + 9 }));
  return wanted.map((label) => {
    const width = label.text.length * 7 + 4;
    const tries = [];
    for (const lift of [0, -16, 16, -32, 32, -48, 48]) {
      for (const side of [1, -1]) tries.push({ side, left: side > 0 ? label.x + 12 : label.x - 12 - width, y: label.y + lift });
    }
    const areas = tries.map((at) => ({ ...at, right: at.left + width, top: at.y - 8, bottom: at.y + 8 }));
    const outside = (at) => at.left < box.left || at.right > box.right + 8 || at.top < box.top - 16 || at.bottom > box.bottom;
    const hits = (at) => taken.filter((o) => at.left < o.right && at.right > o.left && at.top < o.bottom && at.bottom > o.top).length;
    const covered = (at) => spots.filter((s) => s.x > at.left - 5 && s.x < at.right + 5 && s.y > at.top - 4 && s.y < at.bottom + 4).length;
    const price = (at) => (outside(at) ? 1000 : 0) + 50 * hits(at) + covered(at) + Math.abs(at.y - label.y) / 100;
    const chosen = areas.reduce((best, at) => (price(at) < price(best) ? at : best), areas[0]);
    taken.push(chosen);
    const anchor = chosen.side > 0 ? { x: chosen.left, "text-anchor": "start" } : { x: chosen.right, "text-anchor": "end" };
    return svg("text", { class: "name halo", y: chosen.y + 4, "pointer-events": "none", ...anchor }, label.text);
  });
}

// Text in which `commands` are set apart, as elements: nobody sees the marks around them.
const prose = (text) => String(text).split("`").map((part, place) => (place % 2 ? html("code", {}, part) : part));

function tip(lines, x, y) {
  const box = byId("tip");
  box.hidden = !lines;
  if (!lines) return;
  box.textContent = lines.join("\n");
  const { width, height } = box.getBoundingClientRect();
  box.style.left = Math.max(4, Math.min(x + 14, window.innerWidth - width - 6)) + "px";
  box.style.top = (y - height - 12 < 4 ? y + 16 : y - height - 12) + "px";
}

// A text handed to the user as a file, made here: nothing is fetched.
function saveAs(name, text) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  html("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

const duration = (seconds) => (seconds < 1 ? `${Number(seconds.toPrecision(1))} s` : seconds < 90 ? `${seconds.toFixed(0)} s`
  : seconds < 5400 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`);

function copyLine(text, what) {
  const button = html("button", { type: "button", "data-key": "copy " + text, "aria-label": "Copy: " + text }, "Copy");
  button.addEventListener("click", async () => {
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      // Pages opened from the disk may be refused the clipboard: select the line instead.
      done = false;
      window.getSelection().selectAllChildren(button.previousElementSibling);
    }
    button.textContent = done ? "Copied" : "Selected";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  return [what ? html("p", { class: "what" }, what) : null, html("div", { class: "command" }, html("code", {}, text), button)];
}
