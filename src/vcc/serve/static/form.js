// Forms: the fields of a JSON Schema, filled from the open document, each value with its evidence.

import * as api from "./api.js";
import { $, element, save, say, scoreCell, shortened } from "./dom.js";
import * as viewer from "./viewer.js";

const EXAMPLE = {
  type: "object",
  properties: {
    parties: { type: "array", items: { type: "string" } },
    agreement_date: { type: "string", format: "date" },
    governing_law: { type: "string" },
    end_date: { type: "string", format: "date" },
    renewal_term: { type: "string", format: "duration" },
    notice_period: { type: "string", format: "duration" },
    exclusivity: { type: "boolean" },
  },
};
$("schema").value = JSON.stringify(EXAMPLE, null, 2);
let shown = null; // { id, name, schema, form }: what the table shows

export function clear() {
  shown = null;
  $("form-result").hidden = true;
  unfold(true);
}

// The schema is folded away while a filled form is shown.
function unfold(open) {
  $("form-form").classList.toggle("small", !open);
  $("form-button").textContent = open ? "Fill" : "Change the fields";
}

$("schema-file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  if (file) $("schema").value = await file.text();
});

$("form-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if ($("form-form").classList.contains("small")) return unfold(true);
  const entry = await viewer.settled();
  if (!entry) return say("Choose a document first.");
  let schema;
  try {
    schema = JSON.parse($("schema").value);
  } catch (error) {
    return say(`The schema is not JSON: ${error.message}`, 10);
  }
  $("form-button").disabled = true;
  say("Filling…", 120);
  try {
    const form = await api.extract(entry.id, schema);
    if (viewer.current()?.id !== entry.id) return;
    shown = { id: entry.id, name: entry.name, schema, form };
    draw();
    unfold(false);
    const filled = form.fields.filter((one) => one.value !== null).length;
    say(`${filled} value${filled === 1 ? "" : "s"} found.`);
  } catch (error) {
    say(error.message, 10);
  } finally {
    $("form-button").disabled = false;
  }
});

function draw() {
  const { form } = shown;
  $("form-result").hidden = false;
  $("form-missing").textContent = form.missing.length ? `Required but not found: ${form.missing.join(", ")}` : "";
  $("form-table").tBodies[0].replaceChildren(...form.fields.map(line));
}

const words = (value) =>
  value !== null && typeof value === "object" ? Object.values(value).filter((one) => one !== null).join(" ") : String(value);

function line({ path, value, evidence }) {
  const head = element("th", { scope: "row", textContent: path });
  const state = value === null ? "none" : "";
  const cell = element("td", { className: "value", textContent: value === null ? "not found" : words(value) });
  if (!evidence) return element("tr", { className: state }, head, cell, element("td"), element("td"));
  const doubt = value === null ? element("span", { className: "badge", textContent: "doubtful" }) : null;
  const open = element("button", { type: "button", className: "open", textContent: shortened(evidence.text),
    onclick: () => viewer.light(evidence).catch((error) => say(error.message)) });
  const from = element("td", {}, doubt, doubt && " ", open, element("div", { className: "place", textContent: evidence.place }));
  return element("tr", { className: value === null ? "none doubtful" : "" }, head, cell, from, scoreCell(evidence.score));
}

$("form-json").addEventListener("click", () => {
  const { name, form } = shown;
  save(new Blob([JSON.stringify({ document: name, ...form }, null, 1)], { type: "application/json" }), "form.json");
});
$("form-xlsx").addEventListener("click", async () => {
  try {
    save(await api.formSheet(shown.id, shown.schema), "form.xlsx");
  } catch (error) {
    say(error.message, 10);
  }
});
