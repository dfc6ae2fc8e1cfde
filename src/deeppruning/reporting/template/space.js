// The objective space: every candidate, the population of a generation, the picks.

// "candidate-17", fine-tuned on request, reads as two words.
const roleLabel = (role) => (role.charAt(0).toUpperCase() + role.slice(1)).replace(/^Candidate-(?=\d)/, "Candidate ");
const picksAt = (generation) => page.data.picks.filter((row) => row.generation <= generation).at(-1) || null;
// Who holds which role after a generation; what was chosen for a target holds its own at the end.
function heldBy(generation) {
  const chosen = generation === null || generation >= lastGeneration() ? page.data.solutions.filter((one) => kindOf(one.role) === "target") : [];
  return { ...picksAt(generation === null ? Infinity : generation), ...Object.fromEntries(chosen.map((one) => [one.role, one.id])) };
}
const lastGeneration = () => Math.max(1, ...page.data.candidates.map((one) => one.generation));

// The ids in the archive after a generation, where the search keeps one; all of them stand on the front.
function heldAt(generation) {
  if (!page.data.archive) return null;
  const front = page.data.archive.fronts.filter((row) => row.generation <= (generation === null ? Infinity : generation)).at(-1);
  return new Set(front ? front.ids : []);
}

function parentsOf(generation) {
  if (page.data.archive) return [...new Set(page.data.candidates.filter((one) => one.generation === generation).flatMap((one) => one.parents))];
  const row = page.data.picks.find((one) => one.generation === generation - 1);
  if (!row || page.data.selection === "comma") return [];
  return [...new Set(ROLES.map((role) => row[role]).filter((id) => !missing(id)))];
}

function generationColor(generation) {
  const last = lastGeneration();
  const place = last === 1 ? 4 : ((generation - 1) / (last - 1)) * 4;
  const low = Math.min(3, Math.floor(place));
  return `color-mix(in oklab, var(--g${low + 1}) ${Math.round((place - low) * 100)}%, var(--g${low}))`;
}

function describe(one) {
  const original = page.data.original;
  const saved = original ? ` (${share(1 - one.flops / original.flops)} saved)` : "";
  return [`Candidate ${one.id}, generation ${one.generation}`, `error ${errorText(one.error)}`,
    `${count(one.flops)} FLOPs${saved}`, `${count(one.params)} parameters`, ...(one.operator ? [originOf(one)] : [])];
}

// Where a candidate comes from, in words: "cross of 17 and 42", "widths from 17", "seed: l1".
const madeFrom = (one) => `${one.operator} ${one.parents.length > 1 ? "of" : "from"} `;
function originOf(one) {
  if (one.parents.length) return madeFrom(one) + one.parents.join(" and ");
  return one.operator === "original" ? "the original, nothing cut" : `seed: ${one.operator.replace(/\b1 units\b/, "1 unit")}`;
}

// What of a candidate is to be seen while a generation is looked at: all, a shadow, or nothing.
function presence(one) {
  const { generation } = page.state;
  if (generation === null || one.generation === generation) return "full";
  if (one.generation < generation && page.shown.has(one.id)) return "parent";
  return one.generation < generation ? "faded" : "hidden";
}

function extent(values, fromZero) {
  let low = Math.min(...values), high = Math.max(...values);
  const room = (high - low || Math.abs(high) || 1) * 0.05;
  low = fromZero && low - room < (high - low) * 0.15 ? 0 : low - room;
  return { low, high: high + room };
}

function spaceScales(width, shown) {
  const { data, state } = page;
  const height = Math.round(Math.max(300, Math.min(560, width * 0.62)));
  const box = { left: 52, right: width - 14, top: 42, bottom: height - 48, height };
  const start = startPoint();
  const xs = shown.map((one) => one[state.axis]).concat(start ? [start.x] : []);
  const ys = shown.map((one) => one.error).concat(start ? [start.y] : []);
  const x = extent(xs, false), y = state.logSpace && ys.some((value) => value > 0) ? logExtent(ys) : extent(ys, true);
  x.at = scale(x.low, x.high, box.left, box.right);
  y.at = levels(y, box);
  x.text = shortCount;
  y.text = (value) => (data.error_is_share ? Number((value * 100).toPrecision(3)) + " %" : String(Number(value.toPrecision(3))));
  return { box, x, y };
}

// The original network, where what is plotted is known of it.
function startPoint() {
  const { original } = page.data;
  if (!original || missing(original.train_error) || missing(original[page.state.axis])) return null;
  return { x: original[page.state.axis], y: original.train_error };
}

function drawSpace() {
  const { data, state } = page;
  const holder = byId("space");
  const shown = data.candidates.filter((one) => !missing(one.error));
  if (!shown.length) return fill(holder);
  const { box, x, y } = spaceScales(Math.max(280, holder.clientWidth), shown);
  const held = heldAt(state.generation);
  page.shown = new Set([...(state.generation === null ? [] : parentsOf(state.generation)), ...(held || [])]);
  const where = new Map(shown.map((one) => [one.id, { one, x: x.at(one[state.axis]), y: y.at(one.error) }]));
  page.where = where;
  const axis = data.axes.find((entry) => entry.key === state.axis);
  const names = { x: axis.label + (axis.key === "flops" ? " for one input" : ""), y: "Error in the search" };
  const picture = svg("svg", { height: box.height, viewBox: `0 0 ${Math.max(280, holder.clientWidth)} ${box.height}`,
    role: "listbox", "aria-label": "Candidates: error against " + axis.label }, axes(box, x, y, names));
  picture.append(svg("path", held ? { class: "front archive", d: archivePath(where, held) } : { class: "front", d: frontPath(where) }));
  picture.append(...points(where, held), ...marks(where, x, y, box));
  picture.addEventListener("pointermove", (event) => hover(event, picture));
  picture.addEventListener("pointerleave", () => tip(null));
  picture.addEventListener("click", (event) => { const hit = nearest(event, picture, 26); if (hit) choose(hit.one.id); });
  picture.addEventListener("keydown", moveByKey);
  fill(holder, picture);
}

function points(where, held) {
  const rank = { faded: 0, full: 1, parent: 1 };
  const listed = [...where.values()].map((spot) => ({ ...spot, as: presence(spot.one) })).filter((spot) => spot.as !== "hidden");
  listed.sort((a, b) => rank[a.as] - rank[b.as] || a.one.generation - b.one.generation);
  const entry = where.has(page.state.chosen) ? page.state.chosen : listed.length ? listed.at(-1).one.id : null;
  return listed.map(({ one, x, y, as }) => {
    const dim = !qualifies(one);
    const color = generationColor(one.generation);
    const look = ["point", as === "faded" && "faded", dim && "dim", held && held.has(one.id) && "held"].filter(Boolean).join(" ");
    const circle = svg("circle", { class: look, cx: x, cy: y, r: 5.5, "data-key": "point " + one.id, "data-id": one.id,
      style: { fill: color }, tabindex: one.id === entry ? 0 : -1, role: "option",
      "aria-selected": one.id === page.state.chosen ? "true" : "false",
      "aria-label": describe(one).join(", ") });
    circle.addEventListener("focus", () => {
      if (one.id !== page.state.chosen && circle.matches(":focus-visible")) choose(one.id);
      else if (circle.matches(":focus-visible")) tipAt(one.id);
    });
    circle.addEventListener("blur", () => tip(null));
    return circle;
  });
}

// Parents, picks with their names, the original and the chosen one, drawn above the points.
function marks(where, x, y, box) {
  const { state } = page;
  const parts = [], labels = [];
  if (state.generation !== null) {
    for (const id of parentsOf(state.generation)) {
      const spot = where.get(id);
      if (spot) parts.push(svg("circle", { class: "parent", cx: spot.x, cy: spot.y, r: 8 }));
    }
  }
  const start = startPoint();
  if (start) {
    parts.push(marker("original", { transform: `translate(${x.at(start.x)} ${y.at(start.y)})` }));
    labels.push({ x: x.at(start.x), y: y.at(start.y), text: "original" });
  }
  const chosen = where.get(state.chosen);
  if (chosen && presence(chosen.one) !== "hidden") {
    parts.push(svg("line", { class: "cross", x1: box.left, x2: chosen.x - 11, y1: chosen.y, y2: chosen.y }));
    parts.push(svg("line", { class: "cross", x1: chosen.x, x2: chosen.x, y1: chosen.y + 11, y2: box.bottom }));
    parts.push(svg("circle", { class: "ring", cx: chosen.x, cy: chosen.y, r: 11 }));
  }
  const row = heldBy(state.generation);
  const roles = new Map();
  for (const role of [...ROLES, ...Object.keys(row).filter((name) => name !== kindOf(name))]) if (where.has(row[role])) roles.set(row[role], [...(roles.get(row[role]) || []), role]);
  for (const [id, held] of roles) {
    const spot = where.get(id);
    const dim = qualifies(spot.one) ? "" : " dim";
    parts.push(marker(held[0], { class: "pick" + dim, transform: `translate(${spot.x} ${spot.y})`, "data-pick": held.join(" ") }));
    labels.push({ x: spot.x, y: spot.y, text: held.join(", ") });
  }
  if (chosen && !roles.has(state.chosen) && presence(chosen.one) !== "hidden") labels.push({ x: chosen.x, y: chosen.y, text: "#" + state.chosen });
  return [...parts, ...placeLabels(labels, box, [...where.values()].filter((spot) => presence(spot.one) !== "hidden"))];
}

// A staircase through the candidates that no other one beats in both respects.
function frontPath(where) {
  let best = Infinity, path = "", last = null;
  const seen = [...where.values()].filter((spot) => presence(spot.one) !== "hidden");
  for (const spot of seen.sort((a, b) => a.x - b.x || b.y - a.y)) {
    if (spot.one.error >= best) continue;
    path += last ? `H${spot.x}V${spot.y}` : `M${spot.x} ${spot.y}`;
    best = spot.one.error;
    last = spot;
  }
  return path;
}

// A line through what the archive holds: the best of each cost range.
function archivePath(where, held) {
  const spots = [...where.values()].filter((spot) => held.has(spot.one.id)).sort((a, b) => a.x - b.x || b.y - a.y);
  return spots.map((spot, place) => `${place ? "L" : "M"}${spot.x} ${spot.y}`).join("");
}

function nearest(event, picture, reach) {
  const frame = picture.getBoundingClientRect();
  const left = event.clientX - frame.left, top = event.clientY - frame.top;
  let found = null, least = reach * reach;
  for (const spot of page.where.values()) {
    if (presence(spot.one) === "hidden") continue;
    const distance = (spot.x - left) ** 2 + (spot.y - top) ** 2;
    if (distance < least) { least = distance; found = spot; }
  }
  return found;
}

// The tooltip of the chosen point, beside it: by keyboard as by mouse it tells of what is chosen.
function tipAt(id) {
  const spot = page.where.get(id), picture = byId("space").querySelector("svg");
  if (!spot || !picture) return tip(null);
  const frame = picture.getBoundingClientRect();
  tip(describe(spot.one), frame.left + spot.x, frame.top + spot.y);
}

function hover(event, picture) {
  const hit = event.pointerType === "touch" ? null : nearest(event, picture, 16);
  picture.style.cursor = hit ? "pointer" : "";
  tip(hit && describe(hit.one), event.clientX, event.clientY);
}

// Left and right go through the candidates by cost, up and down by error.
function moveByKey(event) {
  const id = Number(event.target.getAttribute("data-id"));
  const open = [...page.where.values()].filter((spot) => presence(spot.one) !== "hidden");
  const along = ["ArrowUp", "ArrowDown"].includes(event.key) ? (spot) => -spot.y : (spot) => spot.x;
  open.sort((a, b) => along(a) - along(b) || a.one.id - b.one.id);
  const at = open.findIndex((spot) => spot.one.id === id);
  const goal = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, Home: 0, End: open.length - 1,
    Enter: at, " ": at }[event.key];
  if (goal === undefined || at < 0) return;
  event.preventDefault();
  const next = open[Math.max(0, Math.min(open.length - 1, goal))].one.id;
  choose(next);
  byId("space").querySelector(`[data-id="${next}"]`).focus();
  tipAt(next);
}

function drawLegend() {
  const last = lastGeneration();
  const swatches = Array.from({ length: last }, (_, index) => html("i", { style: { background: generationColor(index + 1) } }));
  const ramp = html("span", {}, "generation 1", html("span", { class: "ramp", "aria-hidden": "true" }, swatches), String(last));
  const there = heldBy(null);
  const roles = [...ROLES.filter((role) => role !== "target" || Object.keys(there).some((name) => kindOf(name) === role)), "original"].map((role) => html("span", {}, icon(role), role));
  fill(byId("legend"), ramp, roles, html("span", {}, svg("svg", { width: 22, height: 8, "aria-hidden": "true" }, svg("path", { class: page.data.archive ? "front archive" : "front", d: "M0 4H22" })),
    page.data.archive ? "best in its cost range" : "best trade-offs"));
}

function drawPopulation() {
  const { data, state } = page;
  const fit = data.candidates.filter(qualifies).length;
  const filtered = limited() ? ` ${fit} of ${data.candidates.length} qualify${limitNote()}.` : "";
  const born = data.candidates.filter((one) => one.generation === state.generation).length;
  const parents = state.generation === null ? 0 : parentsOf(state.generation).length;
  const kept = parents ? ` and their ${parents === 1 ? "parent" : parents + " parents"}` : "";
  const text = state.generation === null ? `${data.candidates.length} candidates of ${lastGeneration()} generations.`
    : `Generation ${state.generation}: ${born} new candidates${kept}; earlier ones are faint.`;
  const lost = data.candidates.filter((one) => missing(one.error)).length;
  const troubles = lost ? ` ${lost} diverged or failed; they have no error and are in the list only.` : "";
  const held = heldAt(state.generation);
  const filled = held ? ` ${held.size} of ${data.archive.bins} cost ranges have a candidate.` : "";
  byId("population").textContent = text + filled + filtered + troubles;
}
