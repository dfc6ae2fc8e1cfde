// What a network may cost and err at most: a slider for each figure that is known of a candidate.

const LIMITS = [
  { id: "max-error", key: "error", text: (value) => errorText(value) },
  { id: "max-test-error", key: "test_error", text: (value) => errorText(value, 2) },
  { id: "max-flops", key: "flops", text: (value) => count(value) },
  { id: "max-latency", key: "latency_ms", text: (value) => `${Number(value.toPrecision(3))} ms` },
];

const limited = () => LIMITS.some(({ id }) => !missing(page.state.limits[id]));
// Few have been fine-tuned, and fewer measured: who asks for such a limit is told why most are out.
function limitNote() {
  const notes = { "max-test-error": "only fine-tuned candidates have a test error", "max-latency": "few have a measured latency" };
  const all = page.data.candidates.length;
  const said = LIMITS.filter(({ id, key }) => notes[id] && !missing(page.state.limits[id]) && knownOf(key).length < all).map(({ id }) => notes[id]);
  return said.length ? ` (${said.join("; ")})` : "";
}
const knownOf = (key) => page.data.candidates.map((one) => one[key]).filter((value) => !missing(value));

// A figure that nobody has measured is within no limit.
function qualifies(one) {
  return !missing(one.error) && LIMITS.every(({ id, key }) => {
    const limit = page.state.limits[id];
    return missing(limit) || (!missing(one[key]) && one[key] <= limit);
  });
}

// The limit a slider stands for; at its right end there is none.
function limitOf(slider, values) {
  const place = Number(slider.value) / 1000;
  const low = Math.min(...values), high = Math.max(...values);
  return place >= 1 ? null : low + place * (high - low);
}

function placeLimit(slider, limit, values) {
  const low = Math.min(...values), high = Math.max(...values);
  const place = missing(limit) ? 1000 : Math.round(((limit - low) / (high - low || 1)) * 1000);
  if (document.activeElement !== slider) slider.value = String(Math.max(0, Math.min(1000, place)));
}

function drawLimits() {
  for (const { id, key, text } of LIMITS) {
    const values = knownOf(key), slider = byId(id), limit = page.state.limits[id];
    // With a single figure there is nothing to slide along.
    slider.closest(".control").hidden = new Set(values).size < 2;
    const words = missing(limit) ? "any" : text(limit);
    byId(id + "-out").textContent = words;
    slider.setAttribute("aria-valuetext", words);
    if (values.length) placeLimit(slider, limit, values);
  }
}

function listenToLimits(changed) {
  for (const { id, key } of LIMITS) {
    byId(id).addEventListener("input", (event) => {
      page.state.limits[id] = limitOf(event.target, knownOf(key));
      changed();
    });
  }
}
