// Is it really faster? Latencies as they were measured.

SECTIONS.push({ draw: drawBench });

function drawBench() {
  const networks = (page.data.bench && page.data.bench.networks) || {};
  const names = Object.keys(networks).filter((role) => latencyOf(role) !== null);
  byId("bench-section").hidden = !names.length;
  if (!names.length) return;
  const kinds = [...new Set(names.flatMap((role) => Object.keys(networks[role].latency_ms)))];
  const head = html("tr", {}, html("th", { scope: "col" }, "Network"), kinds.map((kind) => html("th", { scope: "col", class: "number" }, `${kind}, ms`)));
  const cell = (timing) => html("td", { class: "number" }, timing ? String(Number(timing.median.toPrecision(3))) + (missing(timing.spread) ? "" : ` ± ${Number(timing.spread.toPrecision(2))}`) : "–");
  fill(byId("bench"), html("table", {}, html("thead", {}, head), html("tbody", {}, names.map((role) =>
    html("tr", {}, html("th", { scope: "row" }, role), kinds.map((kind) => cell(networks[role].latency_ms[kind])))))));
}
