// What was cut: for each layer the filters kept against those the original has.

SECTIONS.push({ draw: drawLayers, filled: true });

// Widths by layer of what is shown: a pick as it was saved, or any candidate.
function shownNetwork() {
  const { data, state } = page;
  const wanted = state.network === "chosen" ? null : data.solutions.find((one) => one.role === state.network);
  const id = wanted ? wanted.id : state.chosen;
  const candidate = data.candidates.find((one) => one.id === id);
  const widths = candidate ? candidate.widths : wanted && wanted.widths ? data.layers.map((layer) => wanted.widths[layer.name]) : null;
  return { name: wanted ? `${wanted.role} (candidate ${id})` : `candidate ${id}`, role: wanted ? wanted.role : "chosen", widths };
}

function drawLayers() {
  const { data, state } = page;
  const { name, role, widths } = shownNetwork();
  byId("layers-section").hidden = !data.layers.length || !widths;
  if (!data.layers.length || !widths) return;
  const tab = (key, text) => html("button", { type: "button", "data-key": key, "data-network": key,
    "aria-pressed": state.network === key ? "true" : "false", onclick: () => { state.network = key; drawLayers(); } }, text);
  const chosen = state.chosen === null ? null : tab("chosen", `Candidate ${state.chosen}`);
  fill(byId("layers-tabs"), data.solutions.map((one) => tab(one.role, roleLabel(one.role))), chosen);
  const original = data.layers.reduce((sum, layer) => sum + (layer.fixed ? 0 : layer.width), 0);
  const kept = data.layers.reduce((sum, layer, index) => sum + (layer.fixed ? 0 : widths[index]), 0);
  const cut = data.layers.map((layer, index) => ({ layer, left: widths[index] / layer.width })).filter((one) => !one.layer.fixed);
  const gone = cut.filter((one) => one.left === 0).length;
  const thinned = cut.filter((one) => one.left > 0);
  const most = thinned.reduce((least, one) => (one.left < least.left ? one : least), thinned[0]);
  byId("layers-summary").textContent = most
    ? `${roleLabel(name)} keeps ${kept} of ${original} filters; ${gone ? `${gone} of ${cut.length} layers were removed with their branches; of the others, ` : ""}most was cut from ${most.layer.name}, which keeps ${share(most.left, 0)}.`
    : "No layer of this network can be cut.";
  const widest = Math.max(...data.layers.map((layer) => layer.width));
  fill(byId("layers"), data.layers.map((layer, index) => layerRow(layer, widths[index], widest, role)));
}

function layerRow(layer, kept, widest, role) {
  // A square root keeps the bars of narrow layers long enough to compare.
  const length = Math.sqrt(layer.width / widest) * 100;
  const fixed = layer.fixed ? ", never cut" : "";
  const kind = [...ROLES, "chosen"].includes(kindOf(role)) ? kindOf(role) : "other";
  const gone = kept === 0;
  return html("div", { class: `layer role-${kind}${layer.fixed ? " fixed" : ""}${gone ? " gone" : ""}`, "data-layer": layer.name,
    title: gone ? `${layer.name}: removed with its branch` : `${layer.name}: ${kept} of ${layer.width} filters kept${fixed}` },
    html("span", { class: "label" }, layer.name),
    html("span", { class: "bar", "aria-hidden": "true" },
      html("span", { style: { width: length + "%" } }, html("i", { style: { width: (kept / layer.width) * 100 + "%" } }))),
    html("span", { class: "count" }, gone ? "gone" : String(kept), html("small", {}, ` / ${layer.width}`)));
}

// All layers of a candidate at a glance, for the panel beside the plot.
function layerStrip(one) {
  const { layers } = page.data;
  if (!layers.length) return null;
  const bars = layers.map((layer, index) => html("i", { title: `${layer.name}: ${one.widths[index]} of ${layer.width}` },
    html("b", { style: { height: (one.widths[index] / layer.width) * 100 + "%" } })));
  return [html("div", { class: "strip", role: "img", "aria-label": "Share of filters kept in each layer, first to last" }, bars),
    html("p", { class: "small muted" }, "Share of filters kept, first layer to last")];
}
