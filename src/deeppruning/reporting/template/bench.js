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
  byId("bench-lead").textContent = names.length ? "Milliseconds for a forward pass, and how many times as fast as the original that is." : "It was not measured yet.";
  const head = html("tr", {}, html("th", { scope: "col" }, "Network"), kinds.map((kind) => [
    html("th", { scope: "col", class: "number" }, `${kind}, ms`), html("th", { scope: "col", class: "number" }, "speed-up")]));
  fill(byId("bench"), html("table", {}, html("thead", {}, head), html("tbody", {}, names.map((role) =>
    html("tr", {}, html("th", { scope: "row" }, role), kinds.map((kind) => benchCells(timing(role, kind), networks.original && timing("original", kind), role)))))));
  fill(byId("bench-more"), warnings.length ? html("div", { class: "warning", role: "note" }, warnings.map((line) => html("p", {}, line)),
    bench.advice ? html("p", { class: "muted" }, `What may help: ${bench.advice}.`) : null) : null,
    bench && bench.noisy ? html("p", { class: "muted small" }, "The spread is large: the machine was busy. Measure again when it is idle.") : null,
    copyLine(commands.bench, names.length ? "Measure again, on this machine:" : "Measure on this machine:"));
}

function benchCells(timing, base, role) {
  const cell = (text) => html("td", { class: "number" }, text);
  if (!timing) return [cell("–"), cell("–")];
  const spread = missing(timing.spread) ? "" : ` ± ${Number(timing.spread.toPrecision(2))}`;
  return [cell(milliseconds(timing.median) + spread), cell(!base || role === "original" ? "–" : `${(base.median / timing.median).toFixed(2)}×`)];
}
