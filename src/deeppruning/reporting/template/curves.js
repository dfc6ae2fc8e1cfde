// Fine-tuning: the error of each pick, epoch by epoch.

SECTIONS.push({ draw: drawCurves, resize: drawCurves, filled: true });

const curveName = (curve) => (curve.roles.length ? curve.roles.join(", ") : curve.id === null ? curve.name : "#" + curve.id);
// Room is scarce beside the plot: of many roles the first is named, and how many more there are.
const curveLabel = (curve) => (curve.roles.length > 2 ? `${curve.roles[0]} +${curve.roles.length - 1}` : curveName(curve));
const curveColor = (curve) => `var(--${SHAPES[curve.roles[0]] ? curve.roles[0] : "accent"})`;

function drawCurves() {
  const { data } = page;
  byId("curves-section").hidden = !data.curves.length;
  if (!data.curves.length) return;
  const rows = data.curves.flatMap((curve) => curve.epochs);
  const tested = rows.some((row) => !missing(row.test_error));
  const trained = rows.some((row) => !missing(row.train_error));
  const base = tested && data.original && !missing(data.original.test_error) ? data.original.test_error : null;
  byId("curves-note").textContent = (tested ? "Solid: test error. " : "There is no test set. ")
    + (trained ? "Dashed: training error. " : "") + (base === null ? "" : "Grey: the original's test error. ")
    + (rows.some((row) => row.epoch === 0) ? "Epoch 0: before training." : "");
  const values = rows.flatMap((row) => [row.test_error, row.train_error]).concat([base]).filter((value) => !missing(value));
  const holder = byId("curves");
  fill(byId("curves-plans"), data.curves.filter((curve) => curve.plan).map((curve) => html("li", {}, `${curveName(curve)}: ${curve.plan}`)));
  drawScaleTabs(values);
  if (!values.length) return fill(holder, html("p", { class: "muted" }, "No error was measured during fine-tuning."));
  const style = getComputedStyle(holder);
  const width = Math.max(260, holder.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight));
  const height = Math.round(Math.max(260, Math.min(380, width * 0.45)));
  const box = { left: 52, right: width - Math.max(76, 10 + 7.5 * Math.max(...data.curves.map((curve) => curveLabel(curve).length))), top: 42, bottom: height - 48 };
  const y = page.state.logError ? logExtent(values) : extent(values, true);
  const first = Math.min(...rows.map((row) => row.epoch));  // 0, before training, where that is known
  const x = { low: first, high: Math.max(first + 1, ...rows.map((row) => row.epoch)), whole: true, text: String };
  x.at = scale(x.low, x.high, box.left + 8, box.right);
  y.at = levels(y, box);
  y.text = (value) => (data.error_is_share ? Number((value * 100).toPrecision(3)) + " %" : String(Number(value.toPrecision(3))));
  const picture = svg("svg", { height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": curvesInWords() },
    axes(box, x, y, { x: "Epoch", y: "Error" }));
  if (base !== null) picture.append(svg("line", { x1: box.left, x2: box.right, y1: y.at(base), y2: y.at(base), stroke: "var(--original)", "stroke-width": 1.5 }));
  for (const curve of data.curves) picture.append(...curveLines(curve, x, y));
  picture.append(...endLabels(base, x, y, box));
  picture.addEventListener("pointermove", (event) => curveTip(event, picture, x));
  picture.addEventListener("pointerleave", () => tip(null));
  fill(holder, picture);
}

// Where an error lies between the bottom and the top of a chart.
function levels(y, box) {
  if (!y.log) return scale(y.low, y.high, box.bottom, box.top);
  const place = scale(Math.log(y.low), Math.log(y.high), box.bottom, box.top);
  return (value) => place(Math.log(Math.max(value, y.low)));
}

// Errors of a few per mille are one line at the bottom of a linear axis.
function logExtent(values) {
  const least = Math.min(...values.filter((value) => value > 0)), most = Math.max(...values);
  // An error of nought has no logarithm: it lies at the bottom, half of the least that was seen.
  const low = values.some((value) => value <= 0) ? least / 2 : least / 1.15, high = most * 1.15;
  const powers = Array.from({ length: 40 }, (_, place) => 10 ** (Math.floor(Math.log10(low)) + place));
  const inside = (factors) => powers.flatMap((power) => factors.map((factor) => factor * power)).filter((tick) => tick >= low && tick <= high);
  const fine = inside([1, 2, 3, 5, 7]), usual = inside([1, 2, 5]);
  return { low, high, log: true, ticks: usual.length > 2 ? usual : fine };
}

function drawScaleTabs(values) {
  const can = values.some((value) => value > 0);
  if (!can) page.state.logError = false;
  const tab = (on, text) => html("button", { type: "button", "data-key": "scale " + text, "aria-pressed": page.state.logError === on ? "true" : "false",
    onclick: () => { page.state.logError = on; drawCurves(); } }, text);
  fill(byId("curves-tabs"), can ? [tab(false, "Linear"), tab(true, "Logarithmic")] : null);
}

function curveLines(curve, x, y) {
  const color = curveColor(curve);
  const parts = [];
  for (const [key, look] of [["train_error", { "stroke-dasharray": "4 4", "stroke-width": 1.3, opacity: 0.75 }], ["test_error", { "stroke-width": 2.2 }]]) {
    const known = curve.epochs.filter((row) => !missing(row[key]));
    const path = known.map((row, index) => `${index ? "L" : "M"}${x.at(row.epoch)} ${y.at(row[key])}`).join("");
    if (known.length) parts.push(svg("path", { d: path, fill: "none", stroke: color, "data-curve": `${curveName(curve)} ${key}`, ...look }));
    if (known.length && key === "test_error") parts.push(svg("circle", { cx: x.at(known.at(-1).epoch), cy: y.at(known.at(-1)[key]), r: 3.5, fill: color }));
  }
  return parts;
}

// Names at the right end of the lines, pushed apart where lines end close together.
function endLabels(base, x, y, box) {
  const ends = page.data.curves.map((curve) => {
    const key = curve.epochs.some((row) => !missing(row.test_error)) ? "test_error" : "train_error";
    const last = curve.epochs.filter((row) => !missing(row[key])).at(-1);
    return last ? { text: curveLabel(curve), color: curveColor(curve), want: y.at(last[key]) } : null;
  }).filter(Boolean);
  if (base !== null) ends.push({ text: "original", color: "var(--original)", want: y.at(base) });
  ends.sort((a, b) => a.want - b.want);
  let floor = -Infinity;
  for (const end of ends) { end.y = Math.max(end.want, floor); floor = end.y + 15; }
  const over = Math.max(0, floor - 15 - box.bottom);
  return ends.map((end) => svg("text", { x: box.right + 8, y: end.y - over + 4, style: { fill: end.color, "font-weight": 600 } }, end.text));
}

function curveTip(event, picture, x) {
  const left = event.clientX - picture.getBoundingClientRect().left;
  const epochs = [...new Set(page.data.curves.flatMap((curve) => curve.epochs.map((row) => row.epoch)))];
  const epoch = epochs.reduce((best, one) => (Math.abs(x.at(one) - left) < Math.abs(x.at(best) - left) ? one : best), epochs[0]);
  const lines = page.data.curves.map((curve) => [curve, curve.epochs.find((row) => row.epoch === epoch)]).filter(([, row]) => row)
    .map(([curve, row]) => `${curveName(curve)}: test ${errorText(row.test_error, 2)}${epoch ? `, training ${errorText(row.train_error, 2)}` : ""}`);
  tip([epoch ? `Epoch ${epoch}` : "Before training", ...lines], event.clientX, event.clientY);
}

function curvesInWords() {
  return page.data.curves.map((curve) => {
    const last = curve.epochs.at(-1);
    return `${curveName(curve)}: test error ${errorText(last.test_error, 2)} after epoch ${last.epoch}`;
  }).join("; ");
}
