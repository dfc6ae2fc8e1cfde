// The cards at the top: the original and the networks to choose from, each with the lines that take it.

const NOTES = {
  original: "The network before pruning", heavy: "Most accurate in the search", knee: "Best trade-off of error and cost",
  light: "Cheapest to run",
};

function drawCards() {
  const { data } = page;
  const original = data.original ? [{ role: "original", ...data.original }] : [];
  byId("networks").hidden = !original.length && !data.solutions.length;
  fill(byId("cards"), [...original, ...data.solutions].map(card));
  drawTaking();
}

function card(one) {
  const { data } = page;
  const isOriginal = one.role === "original";
  const tested = !missing(one.test_error);
  const error = tested ? one.test_error : one.train_error;
  const kept = data.original ? one.flops / data.original.flops : null;
  const rows = [["FLOPs", count(one.flops)],
    isOriginal || kept === null ? null : ["FLOPs saved", html("span", { class: "saved" }, share(1 - kept))],
    ["Parameters", count(one.params)], missing(one.file_bytes) ? null : ["File", `${count(one.file_bytes)}B`],
    ...latencyRows(one)];
  const known = SHAPES[kindOf(one.role)] ? kindOf(one.role) : "other";
  return html("article", { class: `card role-${known}`, "data-card": one.role },
    html("h3", {}, icon(one.role), roleLabel(one.role), one.role === data.recommended ? html("span", { class: "badge" }, "recommended") : null),
    html("p", { class: "note" }, kindOf(one.role) === "target" ? asked(page.data.targets[one.role]) : NOTES[one.role] || "Fine-tuned on request"),
    one.failure ? html("p", { class: "note failure" }, isOriginal ? "Its test" : "Fine-tuning", " failed: ", prose(one.failure)) : null,
    html("div", { class: "big" }, errorText(error, tested ? 2 : 1), html("small", {}, kindOfError(one, isOriginal, tested)), sureness(one)),
    kept === null ? null : html("div", { class: "meter", role: "img", "aria-label": `${share(kept)} of the FLOPs left` },
      html("i", { style: { width: Math.min(100, kept * 100) + "%" } })),
    html("dl", {}, rows.filter(Boolean).map(([name, value]) => [html("dt", {}, name), html("dd", {}, value)])),
    one.unhelped ? html("p", { class: "note unhelped" }, prose(unbroken(sentence(one.unhelped)))) : null,
    isOriginal || missing(one.id) ? null : html("button", { type: "button", "data-key": "card " + one.role,
      onclick: () => { page.state.network = one.role; choose(one.id, true); } }, `Show candidate ${one.id}`),
    takeIt(one.role));
}

// Both forms of a network, each beside the same form of the original.
function latencyRows(one) {
  const { original } = page.data;
  const row = (name, key) => {
    const part = one.role !== "original" && original && original[key] ? html("span", { class: "ratio" }, `(${(one[key] / original[key]).toFixed(2)}×)`) : "";
    return missing(one[key]) ? null : [name, [`${milliseconds(one[key])} ms `, part]];
  };
  return [row("Latency, as exported", "latency_ms"), row("Latency, as loaded", "loaded_ms")];
}

// What a target was to keep to, and whether it does.
function asked(target) {
  if (!target) return "The best network within the limits";
  return target.met ? `Meets ${target.asked}` : `Misses ${target.asked}`;
}

const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
const wasTrained = (one) => page.data.curves.some((curve) => curve.id === one.id && curve.epochs.some((row) => row.epoch > 0));
const kindOfTest = (one) => `test error, ${one.unhelped ? "refitted" : wasTrained(one) ? "fine-tuned" : "untrained"}`;
const kindOfError = (one, isOriginal, tested) => (tested ? (isOriginal ? "test error" : kindOfTest(one))
  : isOriginal ? "error on the sample" : "error in the search");

// What the test set can tell: wrong answers as a count, and the range that the true error lies in.
function sureness(one) {
  if (missing(one.wrong)) return null;
  const [low, high] = one.interval.map((value) => (value * 100).toFixed(value < 0.0995 ? 1 : 0));
  return html("small", { class: "sure" }, `${one.wrong} of ${page.data.test_images.toLocaleString("en")} images`,
    html("br"), `(95\u00a0%: ${low} to ${high}\u00a0%)`);
}

// Load and export, behind a button of the card: the lines stand below all cards, which keep their places.
function takeIt(role) {
  if (!page.data.commands.load[role]) return null;
  const open = page.state.taking === role;
  return html("button", { type: "button", class: "link", "data-take": role, "data-key": "take " + role, "aria-expanded": open ? "true" : "false",
    "aria-controls": "taking", onclick: () => { page.state.taking = open ? null : role; drawCards(); byId("taking").scrollIntoView({ block: "nearest" }); } },
  "Use this network", html("span", { class: "unseen" }, ` (${roleLabel(role)})`));
}

// What is open stays so when news come.
function drawTaking() {
  const role = page.state.taking, { load, export: exports } = page.data.commands;
  const open = role !== null && Boolean(load[role]);
  byId("taking").hidden = !open;
  fill(byId("taking"), open ? [html("h3", {}, icon(role), ` Use ${roleLabel(role)}`),
    copyLine(`import deeppruning as dp; ${load[role]}`, "In Python:"), copyLine(exports[role], "As a file for other runtimes:")] : null);
}
