// The state of the page, its controls, and news from the server while a run goes on.

const page = {
  data: JSON.parse(byId("data").textContent),
  state: { chosen: null, network: null, generation: null, limits: {}, axis: null, rival: null, taking: null, logError: false, logSpace: false,
    table: { filter: "", sort: { name: "Candidate", down: false } } },
  where: new Map(), shown: new Set(), timer: null, etag: null, lost: false,
};
const POLL_MS = 2000, PLAY_MS = 900;

function choose(id, jump = false) {
  page.state.chosen = id;
  if (!jump) page.state.network = "chosen";
  drawSpace();
  drawCandidates();
  drawDetails();
  drawLayers();
  drawTable();
  tip(null);  // it told of the one before
  if (jump) byId("choose").scrollIntoView();
}

function showGeneration(generation) {
  page.state.generation = generation;
  drawControls();
  drawSpace();
  drawPopulation();
}

function play(on) {
  clearInterval(page.timer);
  page.timer = on ? setInterval(() => {
    if (page.state.generation >= lastGeneration()) return play(false);
    showGeneration(page.state.generation + 1);
  }, PLAY_MS) : null;
  byId("play").setAttribute("aria-pressed", on ? "true" : "false");
  byId("play").textContent = on ? "Pause" : "Play";
}

function drawControls() {
  const { data, state } = page;
  const last = lastGeneration();
  const slider = byId("generation");
  slider.max = String(last);
  slider.value = String(state.generation === null ? last : state.generation);
  const total = Math.max(last, data.generations || 0);
  byId("generation-out").textContent = state.generation === null ? "all" : `${state.generation} of ${total}`;
  slider.setAttribute("aria-valuetext", state.generation === null ? "all generations" : `generation ${state.generation} of ${total}`);
  byId("all").setAttribute("aria-pressed", state.generation === null ? "true" : "false");
  drawLimits();
  const list = byId("axis");
  if (list.options.length !== data.axes.length) list.replaceChildren(...data.axes.map((axis) => html("option", { value: axis.key }, axis.label)));
  if (!data.axes.some((axis) => axis.key === state.axis)) state.axis = data.axes[0].key;
  list.value = state.axis;
  byId("scale").value = state.logSpace ? "log" : "linear";
}

function draw() {
  const { data } = page;
  const empty = !data.candidates.length;
  drawHeader();
  for (const part of document.querySelectorAll(".filled")) part.hidden = empty;
  drawCards();
  drawConfig();
  drawTables();
  for (const one of SECTIONS) if (!one.filled) one.draw();
  if (empty) return;
  drawControls();
  drawPopulation();
  drawSpace();
  drawLegend();
  drawCandidates();
  drawDetails();
  for (const one of SECTIONS) if (one.filled) one.draw();
}

function listen() {
  byId("generation").addEventListener("input", (event) => { play(false); showGeneration(Number(event.target.value)); });
  byId("all").addEventListener("click", () => { play(false); showGeneration(null); });
  byId("play").addEventListener("click", () => {
    if (page.timer !== null) return play(false);
    if (page.state.generation === null || page.state.generation >= lastGeneration()) showGeneration(1);
    play(true);
  });
  listenToLimits(() => { drawControls(); drawSpace(); drawPopulation(); drawDetails(); drawTable(); });
  byId("axis").addEventListener("change", (event) => { page.state.axis = event.target.value; drawSpace(); });
  byId("scale").addEventListener("change", (event) => { page.state.logSpace = event.target.value === "log"; drawSpace(); });
  byId("candidate").addEventListener("change", (event) => { if (event.target.value !== "") choose(Number(event.target.value)); });
  window.addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details")) one.open = true; });
  for (const one of SECTIONS) if (one.once) one.once();
  let width = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth === width || !page.data.candidates.length) return;
    width = window.innerWidth;
    tip(null);
    drawSpace();
    for (const one of SECTIONS) if (one.resize) one.resize();
  });
}

async function poll() {
  try {
    const headers = page.etag ? { "If-None-Match": page.etag } : {};
    const answer = await fetch("data.json", { headers, cache: "no-store" });
    if (answer.status !== 200 && answer.status !== 304) throw new Error(answer.statusText);
    const recovered = page.lost;
    page.lost = false;
    if (answer.status === 200) {
      page.data = await answer.json();
      page.etag = answer.headers.get("ETag");
      start();
      draw();
    } else if (recovered) drawHeader();
  } catch {
    page.lost = true;
    drawHeader();
  }
  setTimeout(poll, POLL_MS);
}

// Begin with the recommended one on show, or else the knee, as soon as there is one.
function start() {
  const { solutions, recommended } = page.data;
  const first = solutions.find((one) => one.role === recommended) || solutions.find((one) => one.role === "knee");
  if (page.state.network === null && first) page.state.network = first.role;
  if (page.state.chosen === null && first && !missing(first.id)) page.state.chosen = first.id;
}

for (const label of document.querySelectorAll("label, p.lead")) {
  for (const part of label.childNodes) if (part.nodeType === Node.TEXT_NODE) part.nodeValue = worded(part.nodeValue);
}
start();
draw();
listen();
if (document.body.dataset.live === "true") setTimeout(poll, POLL_MS);
