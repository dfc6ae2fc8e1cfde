// Is it really faster? Latencies as they were measured, and how many times as fast as the original each is.

SECTIONS.push({ draw: drawBench });

function drawBench() {
  const { bench, commands, state } = page.data;
  const networks = (bench && bench.networks) || {};
  const timing = (role, kind) => { const found = (networks[role].latency_ms || {})[kind]; return found && Number.isFinite(found.median) ? found : null; };
  const kinds = [...new Set(Object.values(networks).flatMap((one) => Object.keys(one.latency_ms || {})))];
  const names = Object.keys(networks).filter((role) => kinds.some((kind) => timing(role, kind)));
  byId("bench-section").hidden = !names.length && state !== "finished";
  byId("bench").hidden = !names.length;
  const warnings = (bench && bench.warnings) || [];
  byId("bench-lead").textContent = names.length ? "Milliseconds per forward pass, and the speed-up over the original." : "Not measured yet.";
  const head = html("tr", {}, html("th", { scope: "col" }, "Network"), kinds.map((kind) => [
    html("th", { scope: "col", class: "number" }, `${kind}, ms`), html("th", { scope: "col", class: "number" }, "speed-up")]));
  fill(byId("bench"), html("table", {}, html("thead", {}, head), html("tbody", {}, names.map((role) =>
    html("tr", {}, html("th", { scope: "row" }, role), kinds.map((kind) => benchCells(timing(role, kind), networks.original && timing("original", kind.replace(" int8", "")), kind.includes(" int8") ? "" : role)))))));
  drawInt8(page.data.int8 || {});
  fill(byId("bench-more"), warnings.length ? html("div", { class: "warning", role: "note" }, warnings.map((line) => html("p", {}, prose(line))),
    bench.advice ? html("p", { class: "muted" }, "What may help: ", prose(bench.advice), ".") : null) : null,
    bench && bench.noisy ? html("p", { class: "muted small" }, "The spread is large: the machine was busy. Measure again when it is idle.") : null,
    copyLine(commands.bench, names.length ? "Measure again, on this machine:" : "Measure on this machine:"));
}

// Whole numbers of eight bits beside floats: what is saved, and what it costs.
function drawInt8(int8) {
  const names = Object.keys(int8), number = { class: "number" };
  const size = (value) => missing(value) ? "–" : `${count(value)}B`, share = (error) => missing(error) ? "–" : `${(100 * error).toFixed(2)}\u00a0%`;
  byId("int8").hidden = byId("int8-lead").hidden = !names.length;
  byId("bench-section").hidden = byId("bench-section").hidden && !names.length;
  const head = html("tr", {}, html("th", { scope: "col" }, "Network"), ["float file", "int8 file", "float test error", "int8 test error", "test images"].map((name) => html("th", { scope: "col", ...number }, name)));
  fill(byId("int8"), html("table", {}, html("thead", {}, head), html("tbody", {}, names.map((role) => { const one = int8[role];
    return html("tr", {}, html("th", { scope: "row" }, role), [size(one.float_file_bytes), size(one.file_bytes), share(one.float_test_error), share(one.test_error), missing(one.test_images) ? "–" : `${one.test_images}`].map((text) => html("td", number, text))); }))));
}

function benchCells(timing, base, role) {
  const cell = (text) => html("td", { class: "number" }, text);
  if (!timing) return [cell("–"), cell("–")];
  const spread = missing(timing.spread) ? "" : ` ± ${Number(timing.spread.toPrecision(2))}`;
  return [cell(milliseconds(timing.median) + spread), cell(!base || role === "original" ? "–" : speedUp(base.median / timing.median, timing))];
}

// With its confidence interval, which too few rounds do not give; at a run's end only the fastest of several runs is known.
function speedUp(ratio, { runs, speed_low: low, speed_high: high }) {
  const sure = missing(runs) ? "" : missing(low) ? " (too few rounds to be sure)" : ` (${low.toFixed(2)} to ${high.toFixed(2)})`;
  return `${ratio.toFixed(2)}×${sure}`;
}
