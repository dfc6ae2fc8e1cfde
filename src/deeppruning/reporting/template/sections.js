// Everything of the page that is words and numbers: header, details, tables, options.

// A number stays on the line of its unit.
const unbroken = (text) => text.replace(/(\d) (?=%|ms\b)/g, "$1\u00a0");

function drawHeader() {
  const { data } = page;
  document.title = `${data.title}: ${data.status}`;
  byId("title").textContent = data.title;
  fill(byId("verdict"), prose(unbroken(worded(data.verdict))));
  byId("verdict").className = data.warned ? "warned" : "";
  byId("remark").hidden = !data.remark;
  fill(byId("remark"), data.remark ? prose(unbroken(sentence(data.remark))) : null);
  const asked = Object.entries(data.targets).map(([role, one]) => `${roleLabel(role)} ${one.asked}: ${one.note}.`);
  const notes = [...asked, ...data.refused.map((line) => `${roleLabel(line)}.`), ...data.notes.map(sentence)];
  byId("asked").hidden = !notes.length;
  fill(byId("asked"), notes.map((line, place) => [place ? html("br") : null, prose(unbroken(line))]));
  const status = byId("status");
  const lost = page.lost ? " (no answer from the server)" : "";
  if (status.textContent !== data.status + lost) status.textContent = data.status + lost;
  status.setAttribute("data-state", data.state === "finished" ? "finished" : data.alive && !page.lost ? "running" : "stopped");
  const total = data.evaluations ? ` of ${data.evaluations}` : "";
  byId("run").textContent = `Run ${data.run} · ${data.candidates.length}${total} candidates evaluated`;
  drawProgress();
}

// How far a run at work is; of one that stopped, how to go on with it.
function drawProgress() {
  const { progress, state, alive, commands } = page.data;
  byId("progress").hidden = !progress;
  if (progress) {
    byId("progress-bar").value = progress.done / progress.of;
    const left = missing(progress.seconds_left) ? "" : `, about ${duration(progress.seconds_left)} left`;
    const then = progress.what === "candidates" ? " for the search; fine-tuning follows" : " until all are fine-tuned";
    byId("progress-text").textContent = `${progress.done} of ${progress.of} ${progress.what}${left}${left ? then : ""}.`;
  }
  const stopped = state !== "finished" && !alive;
  byId("resume").hidden = !stopped;
  fill(byId("resume"), !stopped ? null : commands.resume ? copyLine(commands.resume, "The run was stopped. Continue it:")
    : html("p", {}, "The run was stopped. The command that started it continues it."));
}

function drawCandidates() {
  const { data, state } = page;
  const list = byId("candidate");
  const roles = new Map();
  for (const one of data.solutions) roles.set(one.id, [...(roles.get(one.id) || []), one.role]);
  // Rebuilding an open list would close it under the user's hand.
  const signature = data.candidates.length + [...roles].join();
  if (list.getAttribute("data-signature") !== signature) {
    list.setAttribute("data-signature", signature);
    list.replaceChildren(html("option", { value: "" }, "Choose…"), ...data.candidates.map((one) => html("option", { value: one.id },
      `${one.id}${roles.has(one.id) ? ` (${roles.get(one.id).join(", ")})` : ""} · ${one.status === "ok" ? errorText(one.error) : one.status} · ${count(one.flops)} · gen. ${one.generation}`)));
  }
  list.value = state.chosen === null ? "" : String(state.chosen);
}

function drawDetails() {
  const { data, state } = page;
  const one = data.candidates.find((entry) => entry.id === state.chosen);
  if (!one) return fill(byId("details"), html("p", { class: "muted small" }, "Choose a candidate in the plot or in the list."));
  const held = data.solutions.filter((entry) => entry.id === one.id).map((entry) => entry.role);
  const tuned = data.solutions.find((entry) => entry.id === one.id && !missing(entry.test_error));
  const rows = [["Generation", one.generation], one.operator ? ["Origin", originLinks(one)] : null,
    data.archive ? ["In the archive", archiveText(one)] : null, ["Error in the search", errorText(one.error)],
    missing(one.score) ? null : ["Selection score", String(Number(one.score.toPrecision(4)))],
    tuned ? [kindOfTest(tuned).replace("test", "Test"), errorText(tuned.test_error, 2)] : null,
    missing(one.latency_ms) ? null : ["Latency", `${milliseconds(one.latency_ms)} ms`],
    ["FLOPs", count(one.flops)],
    data.original ? ["FLOPs saved", share(1 - one.flops / data.original.flops)] : null, ["Parameters", count(one.params)],
    data.axes[0].key === "cost" && !missing(one.cost) ? [data.axes[0].label, String(Number(one.cost.toPrecision(4)))] : null,
    ["Filter groups kept", `${one.kept} of ${one.num_genes}`], ["Evaluation time", `${one.seconds.toFixed(1)} s`],
    one.status === "ok" ? null : ["Status", one.status], one.reason ? ["Reason", prose(one.reason)] : null,
    missing(one.error) || qualifies(one) ? null : ["Within your limits", "no"]];
  fill(byId("details"), html("h3", {}, `Candidate ${one.id}`),
    held.length ? html("div", { class: "badges" }, held.map((role) => html("span", { class: `badge role-${SHAPES[role] ? role : "other"}` }, role))) : null,
    html("dl", {}, rows.filter(Boolean).map(([name, value]) => [html("dt", {}, name), html("dd", {}, value)])),
    layerStrip(one), missing(one.error) || !data.commands.finetune ? null : copyLine(data.commands.finetune + one.id, "Fine-tune this candidate on all training data:"));
}

// As `originOf`, with parents to click on.
function originLinks(one) {
  if (!one.parents.length) return originOf(one);
  const link = (id) => html("button", { type: "button", class: "link", "data-key": "parent " + id, "aria-label": `Show candidate ${id}`,
    onclick: () => { choose(id); byId("candidate").focus({ preventScroll: true }); } }, String(id));
  return [madeFrom(one), one.parents.map((id, place) => [place ? " and " : null, link(id)])];
}

function archiveText(one) {
  if (heldAt(null).has(one.id)) return "yes";
  return page.data.archive.entered.includes(one.id) ? "replaced since" : "no";
}

// Sections that are a heading, a sentence and a table, whatever they are about; what is folded stays as it is left.
function drawTables() {
  const found = page.data.tables || [];
  byId("tables").hidden = !found.length;
  const open = new Set([...byId("tables").querySelectorAll("details[open]")].map((one) => one.getAttribute("data-key")));
  const body = ({ title, lead, columns, rows }) => [lead ? html("p", { class: "lead" }, prose(lead)) : null,
    html("div", { class: "panel scroll", tabindex: 0, role: "region", "aria-label": `${title}, table` }, html("table", {},
      html("thead", {}, html("tr", {}, columns.map((name) => html("th", { scope: "col" }, name)))),
      html("tbody", {}, rows.map(([first, ...rest]) => html("tr", {}, html("th", { scope: "row" }, first), rest.map((text) => html("td", {}, text)))))))];
  fill(byId("tables"), found.map((one) => html("section", { "aria-label": one.title }, one.folded
    ? html("details", { "data-key": one.title, open: open.has(one.title) ? "" : null }, html("summary", {}, html("h2", {}, one.title)), body(one))
    : [html("h2", {}, one.title), body(one)])));
}

function drawConfig() {
  const { data } = page;
  const text = (value) => (Array.isArray(value) ? value.map(text).join(", ") || "none" : value !== null && typeof value === "object"
    ? Object.entries(value).map(([key, entry]) => `${key} = ${text(entry)}`).join(", ") || "none" : String(value));
  const table = (name, rows) => html("div", { class: "panel" }, html("h3", {}, name), html("table", {}, html("tbody", {},
    Object.entries(rows).map(([key, value]) => html("tr", {}, html("th", { scope: "row" }, key), html("td", {}, text(value)))))));
  const seeds = Object.fromEntries(Object.entries(data.config).filter(([, rows]) => !missing(rows) && !missing(rows.seed)).map(([name, rows]) => [name, rows.seed]));
  const versions = { "deeppruning (run)": data.version, "deeppruning (page)": data.page_version, ...data.versions };
  fill(byId("config"), table("versions", versions), Object.keys(seeds).length ? table("seeds", seeds) : null
  );
  fill(byId("options"), Object.entries(data.config).map(([name, rows]) => table(name, rows !== null && typeof rows === "object" ? rows : { [name]: rows })));
  const after = { recalibrate: "after recalibration", refit: "after refitting" }[(data.config.search || {}).evaluation] || "after brief training";
  byId("footer").textContent = "FLOPs are multiply-adds of convolution and linear layers for one input. The error in the search is "
    + `measured ${after} on a small sample${data.solutions.some(wasTrained) ? "; only the selected networks are fine-tuned on all training data" : ""}.`;
  if (data.by_drift) byId("footer").textContent = "FLOPs are multiply-adds of convolution and linear layers for one input. The drift is the fraction of "
    + "other answers where the output is a score for each class, else the squared distance of the outputs over their variance. Nothing is trained.";
}
