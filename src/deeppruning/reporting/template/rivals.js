// Other methods at the same FLOPs: a line and a row for each; pointing at one or choosing it brings out both.

SECTIONS.push({ draw: drawRivals, resize: drawRivalChart });

function drawRivals() {
  const found = page.data.rivals;
  byId("rivals-section").hidden = !found;
  if (!found) return;
  byId("rivals-lead").textContent = rivalsInWords(found);
  drawRivalTable(found);
  drawSearches(found);
  drawRivalChart();
}

function rivalsInWords({ methods, matched, seeds, targets, finetuned }) {
  const others = methods.length - (matched ? 1 : 0);
  const who = `${others} ${matched ? "other " : ""}method${others === 1 ? "" : "s"} pruned the network to the same FLOPs`;
  const same = matched ? " as this run's networks" : "";
  const many = seeds[0] === seeds[1] ? seeds[1] : `${seeds[0]} to ${seeds[1]}`;
  const plural = seeds[1] === 1 ? "seed" : "seeds";
  const spread = seeds[1] > 1 ? `, of which the mean is shown (± standard deviation)` : "";
  return `${who}${same} (${targets.map((target) => target.name).join(", ")}); all results were fine-tuned in the same way${finetuned ? ` (${finetuned})` : ""}, with ${many} ${plural}${spread}.`;
}

// What was chosen stays brought out; what is pointed at or focused comes before it for the while.
function showRival(name) {
  const wanted = missing(name) ? page.state.rival : name;
  byId("rivals").classList.toggle("some", !missing(wanted));
  for (const part of document.querySelectorAll("[data-rival]")) part.classList.toggle("on", part.getAttribute("data-rival") === wanted);
  for (const button of document.querySelectorAll(".method")) {
    button.setAttribute("aria-pressed", button.closest("tr").getAttribute("data-rival") === page.state.rival ? "true" : "false");
  }
}

function chooseRival(name) {
  page.state.rival = page.state.rival === name ? null : name;
  showRival(page.state.rival);
}

const rivalPoints = (method) => method.points.filter(Boolean).sort((a, b) => a.share - b.share);
const rivalClass = (method, base) => (method.ours ? base + " ours" : base);

function drawRivalChart() {
  const found = page.data.rivals;
  const holder = byId("rivals");
  if (!found) return;
  const style = getComputedStyle(holder);
  const width = Math.max(260, holder.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
  const wide = width >= 640;
  const height = wide ? Math.max(440, 150 + 18 * found.methods.length) : 340;
  const box = { left: 52, right: width - 14, top: 42, bottom: height - 48 };
  const points = found.methods.flatMap((method) => method.points.filter(Boolean).map((point) => ({ ...point, ours: method.ours })));
  const around = (point) => (point.ours && point.spread !== null ? [point.after - point.spread, point.after + point.spread] : [point.after]);
  const y = extent([...points.flatMap(around), found.original_error], true);
  const shares = points.map((point) => point.share);
  // Methods meet a target but for a filter or two: a single target must not fill the whole axis.
  const room = Math.max(0, 0.1 - (Math.max(...shares) - Math.min(...shares))) / 2;
  const x = extent([Math.min(...shares) - room, Math.max(...shares) + room], false);
  x.at = scale(x.low, x.high, box.left + (wide ? 150 : 8), box.right);
  y.at = scale(y.low, y.high, box.bottom, box.top);
  x.text = y.text = (value) => Number((value * 100).toPrecision(3)) + " %";
  const level = y.at(found.original_error);
  const picture = svg("svg", { height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": rivalChartInWords(found) },
    axes(box, x, y, { x: "FLOPs, fraction of the original's", y: "Test error, fine-tuned" }),
    svg("line", { class: "rival-original", x1: x.at(x.low), x2: box.right, y1: level, y2: level }));
  // Ours last: on top.
  const ordered = [...found.methods].sort((a, b) => Number(a.ours) - Number(b.ours));
  picture.append(...ordered.flatMap((method) => rivalLine(method, x, y)), ...rivalNames(found, x, y, box, wide));
  const near = (event) => nearestRival(event, picture, x, y);
  picture.addEventListener("pointermove", (event) => {
    const method = near(event);
    showRival(method && method.name);
    tip(method && rivalTip(method), event.clientX, event.clientY);
  });
  picture.addEventListener("pointerleave", () => { showRival(null); tip(null); });
  picture.addEventListener("click", (event) => { const method = near(event); if (method) chooseRival(method.name); });
  fill(holder, picture);
  showRival(null);
}

function rivalLine(method, x, y) {
  const known = rivalPoints(method);
  const path = (rows) => rows.map(([share, error], index) => `${index ? "L" : "M"}${x.at(share)} ${y.at(error)}`).join("");
  const spread = known.filter((point) => point.spread !== null);
  const band = [...spread.map((point) => [point.share, point.after + point.spread]),
    ...spread.map((point) => [point.share, point.after - point.spread]).reverse()];
  const part = (tag, base, attributes) => svg(tag, { class: rivalClass(method, base), "data-rival": method.name, ...attributes });
  return [spread.length > 1 ? part("path", "rival-band", { d: path(band) + "Z" }) : null,
    part("path", "rival-line", { d: path(known.map((point) => [point.share, point.after])) }),
    known.map((point) => part("circle", "rival-dot", { cx: x.at(point.share), cy: y.at(point.after), r: method.ours ? 4.5 : 2.5 }))]
    .flat().filter(Boolean);
}

// Names at the left ends, where lines are furthest apart; without room for that, in the corner, of what is brought out.
function rivalNames(found, x, y, box, wide) {
  const ends = found.methods.map((method) => ({ method, text: method.label, x: x.at(rivalPoints(method)[0].share), want: y.at(rivalPoints(method)[0].after) }));
  ends.push({ method: null, text: "original", x: x.at(x.low), want: y.at(found.original_error) });
  ends.sort((a, b) => a.want - b.want);
  const look = (end) => (end.method ? rivalClass(end.method, wide ? "rival-name" : "rival-name brief") : "");
  const name = (end, attributes) => svg("text", { class: look(end), "data-rival": end.method && end.method.name,
    "text-anchor": "end", ...attributes }, shorten(end.text));
  if (!wide) {
    const corner = (end) => (end.method ? box.top + (end.method.ours ? 4 : 20) : end.want + 13);
    return ends.map((end) => name(end, { x: box.right, y: corner(end) }));
  }
  const levels = spreadApart(ends.map((end) => end.want), 14, box.top, box.bottom - 8);
  return ends.flatMap((end, place) => [
    svg("path", { class: "rival-lead", d: `M${box.left + 132} ${levels[place]}L${end.x - 4} ${end.want}` }),
    name(end, { x: box.left + 128, y: levels[place] + 4 })]);
}

// Ascending places at least a gap apart, each as near as can be to the one wanted: blocks that touch move as one.
function spreadApart(wanted, gap, low, high) {
  const step = Math.min(gap, (high - low) / Math.max(1, wanted.length - 1));
  const blocks = [];
  for (const place of wanted) {
    let start = Math.min(Math.max(place, low), high), count = 1;
    while (blocks.length && blocks.at(-1).start + step * blocks.at(-1).count > start) {
      const above = blocks.pop();
      const mean = (above.start * above.count + (start - step * above.count) * count) / (above.count + count);
      count += above.count;
      start = Math.min(Math.max(mean, low), high - step * (count - 1));
    }
    blocks.push({ start, count });
  }
  return blocks.flatMap(({ start, count }) => Array.from({ length: count }, (_, index) => start + step * index));
}
const shorten = (text) => (text.length > 18 ? text.slice(0, 17) + "…" : text);

// The line closest above or below the pointer, unless all are far.
function nearestRival(event, picture, x, y) {
  const area = picture.getBoundingClientRect();
  const left = event.clientX - area.left, top = event.clientY - area.top;
  const distance = (method) => {
    const known = rivalPoints(method).map((point) => [x.at(point.share), y.at(point.after)]);
    const next = known.findIndex(([place]) => place >= left);
    if (next <= 0) { const [a, b] = known.at(next); return Math.hypot(a - left, b - top); }
    const [[x1, y1], [x2, y2]] = [known[next - 1], known[next]];
    return Math.abs(y1 + ((left - x1) / (x2 - x1)) * (y2 - y1) - top);
  };
  const best = page.data.rivals.methods.map((method) => [distance(method), method]).reduce((a, b) => (b[0] < a[0] ? b : a));
  return best[0] < 24 ? best[1] : null;
}

const rivalError = (point) => share(point.after, 2) + (point.spread === null ? "" : ` ± ${(point.spread * 100).toFixed(2)}`);
const rivalTip = (method) => [`${method.label} (${method.kind})`, ...method.points.map((point, place) =>
  (point ? `${page.data.rivals.targets[place].name}: ${rivalError(point)} at ${share(point.share)} of the FLOPs` : null)).filter(Boolean)];

function rivalChartInWords({ methods, targets, middle }) {
  const known = methods.filter((method) => method.points[middle]);
  return `Test error against FLOPs, one line for each method; the table below has the figures. At ${targets[middle].name}: `
    + known.map((method) => `${method.label} ${share(method.points[middle].after, 2)}`).join(", ");
}

function drawRivalTable({ methods, targets, middle }) {
  const group = (text) => html("th", { scope: "colgroup", colspan: 2, class: "number group" }, text);
  const column = (text) => html("th", { scope: "col", class: "number" }, text);
  const head = [html("tr", {}, html("th", { scope: "col", rowspan: 2 }, "Method"), targets.map((target) => group(target.name)),
    group("time for all"), html("th", { scope: "col", rowspan: 2 }, "Kind")),
  html("tr", {}, targets.map(() => [column("error %, cut → tuned"), column("FLOPs")]), column("select"), column("fine-tune"))];
  const cell = (...children) => html("td", { class: "number" }, ...children);
  const hundredths = (value, places) => (value * 100).toFixed(places);
  const figures = (point) => (point ? [cell(html("span", { class: "muted" }, `${missing(point.before) ? "–" : hundredths(point.before, 1)} → `), hundredths(point.after, 2),
    point.spread === null ? null : html("span", { class: "muted" }, ` ± ${hundredths(point.spread, 2)}`)), cell(share(point.share))] : [cell("–"), cell("–")]);
  const time = (method, key) => cell(duration(method.points.filter(Boolean).reduce((sum, point) => sum + point[key], 0)));
  const row = (method) => html("tr", { class: rivalClass(method, "rival-row"), "data-rival": method.name,
    onclick: () => chooseRival(method.name), onpointerenter: () => showRival(method.name), onpointerleave: () => showRival(null),
    onfocusin: () => showRival(method.name), onfocusout: () => showRival(null) },
    html("th", { scope: "row" }, html("button", { type: "button", class: "method", "data-key": "rival " + method.name, title: method.label }, method.label)),
    method.points.map(figures), time(method, "select_seconds"), time(method, "finetune_seconds"), html("td", { class: "muted" }, method.kind));
  fill(byId("rivals-table"), html("p", { class: "small muted" }, `Test errors after the cut and after fine-tuning, sorted by those at ${targets[middle].name}. Choose a method to highlight its line.`),
    html("table", {}, html("thead", {}, head), html("tbody", {}, methods.map(row))));
}

function drawSearches({ searches }) {
  byId("rivals-searches").hidden = !searches.length;
  const column = (text) => html("th", { scope: "col", class: "number" }, text);
  const volume = (one) => one.hypervolume.toFixed(4) + (one.spread === null ? "" : ` ± ${one.spread.toFixed(4)}`);
  fill(byId("rivals-searches"),
    html("p", { class: "small muted" }, "Hypervolume: the fraction of the space of error and FLOPs that a search dominates, 0 to 1; larger is better."),
    html("table", {}, html("thead", {}, html("tr", {}, html("th", { scope: "col" }, "Search"), column("evaluations"), column("hypervolume"))),
    html("tbody", {}, searches.map((one) => html("tr", {}, html("th", { scope: "row" }, one.label),
      html("td", { class: "number" }, String(Math.round(one.evaluations))), html("td", { class: "number" }, volume(one)))))));
}
