// Every candidate as a row: sorted by a click on a column's name, filtered, and saved as CSV.

SECTIONS.push({ draw: drawTable, filled: true, once: listenToTable });

const MOST_ROWS = 300; // drawn at once: more would make the page slow, and a CSV has them all
const rolesOf = (one) => page.data.solutions.filter((entry) => entry.id === one.id).map((entry) => entry.role).join(", ");
const savedShare = (one) => (page.data.original ? 1 - one.flops / page.data.original.flops : null);
const milliseconds = (value) => (missing(value) ? "–" : String(Number(value.toPrecision(3))));

// What a column is called, its value for sorting and for the file, and how it is shown.
const COLUMNS = [
  { name: "Candidate", value: (one) => one.id },
  { name: "Role", value: rolesOf, words: true },
  { name: "Generation", value: (one) => one.generation },
  { name: "Error in the search", value: (one) => one.error, show: (value) => errorText(value) },
  { name: "Test error", value: (one) => one.test_error, show: (value) => errorText(value, 2), optional: true },
  { name: "FLOPs", value: (one) => one.flops, show: count },
  { name: "FLOPs saved", value: savedShare, show: (value) => (missing(value) ? "–" : share(value)) },
  { name: "Parameters", value: (one) => one.params, show: count },
  { name: "Latency, ms", value: (one) => one.latency_ms, show: milliseconds, optional: true },
  { name: "Cost", value: (one) => one.cost, show: milliseconds, when: () => page.data.axes[0].key === "cost" },
  { name: "Origin", value: (one) => (one.operator ? originOf(one) : ""), words: true, optional: true },
  { name: "State", value: (one) => (one.reason ? `${one.status}: ${one.reason}` : one.status), words: true },
];

const columnsShown = () => COLUMNS.filter((column) => (column.when ? column.when()
  : !column.optional || page.data.candidates.some((one) => !missing(column.value(one)) && column.value(one) !== "")));

function rowsShown() {
  const { filter, sort } = page.state.table;
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  const text = (one) => COLUMNS.filter((column) => column.words).map((column) => column.value(one)).concat(`#${one.id}`).join(" ").toLowerCase();
  const rows = page.data.candidates.filter((one) => (!limited() || qualifies(one)) && words.every((word) => text(one).includes(word)));
  const { value } = COLUMNS.find((column) => column.name === sort.name);
  // What is not known comes last, whichever way the rest is sorted.
  const unknown = (one) => missing(value(one)) || value(one) === "";
  const order = (a, b) => (typeof value(a) === "string" ? value(a).localeCompare(value(b)) : value(a) - value(b));
  return rows.sort((a, b) => unknown(a) - unknown(b) || (unknown(a) ? 0 : order(a, b) * (sort.down ? -1 : 1)) || a.id - b.id);
}

function drawTable() {
  const { sort } = page.state.table;
  const columns = columnsShown(), rows = rowsShown();
  const head = columns.map(({ name, words }) => {
    const on = sort.name === name;
    return html("th", { scope: "col", class: words ? null : "number", "aria-sort": on ? (sort.down ? "descending" : "ascending") : "none" },
      html("button", { type: "button", class: "sort", "data-key": "sort " + name, onclick: () => sortBy(name) }, name,
        html("span", { "aria-hidden": "true" }, on ? (sort.down ? "\u00a0↓" : "\u00a0↑") : "")));
  });
  const cell = (column, one, first) => {
    const value = column.value(one);
    const text = column.show ? column.show(value) : missing(value) ? "–" : String(value);
    if (!first) return html("td", { class: column.words ? null : "number" }, text);
    return html("th", { scope: "row", class: "number" }, html("button", { type: "button", class: "link", "data-key": "row " + one.id,
      "aria-label": `Show candidate ${one.id}`, onclick: () => choose(one.id, true) }, text));
  };
  const body = rows.slice(0, MOST_ROWS).map((one) => html("tr", { "data-row": one.id, class: one.id === page.state.chosen ? "on" : null },
    columns.map((column, place) => cell(column, one, place === 0))));
  fill(byId("table"), html("thead", {}, html("tr", {}, head)), html("tbody", {}, body));
  const cut = rows.length > MOST_ROWS ? ` The first ${MOST_ROWS} are shown; the CSV has all of them.` : "";
  byId("table-count").textContent = `${rows.length} of ${page.data.candidates.length} candidates.${cut}`;
  byId("table-csv").disabled = !rows.length;
}

function sortBy(name) {
  const { sort } = page.state.table;
  page.state.table.sort = { name, down: sort.name === name ? !sort.down : false };
  drawTable();
}

// A cell of the file. A spreadsheet would take a text that begins so for a formula, and compute it.
function csvCell(value) {
  if (missing(value)) return "";
  if (typeof value === "number") return String(value);
  const safe = /^[=+\-@\t\r]/.test(value) ? "'" + value : value;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function csvOf(columns, rows) {
  const lines = rows.map((one) => columns.map((column) => csvCell(column.value(one))).join(","));
  return [columns.map((column) => csvCell(column.name)).join(","), ...lines, ""].join("\r\n");
}

function listenToTable() {
  byId("table-filter").addEventListener("input", (event) => { page.state.table.filter = event.target.value; drawTable(); });
  byId("table-csv").addEventListener("click", () => saveAs("candidates.csv", csvOf(columnsShown(), rowsShown())));
}
