// One open document: its pages or its text, the lit span, and the strip of how closely each place was read.

import * as api from "./api.js";
import { $, place, say, setPlace } from "./dom.js";
import { openPdf } from "./pdf-view.js";
import { openText } from "./text-view.js";

let open = null; // { entry, view, asText, span }
let latest = 0; // opening takes time: only the latest counts
let opening = Promise.resolve();

export const current = () => open?.entry ?? null;

// The open document, once one that is being opened is there.
export const settled = () => opening.then(current, current);

export function show(entry, asText = false) {
  opening = opened(entry, asText);
  return opening;
}

async function opened(entry, asText) {
  const turn = ++latest;
  if (open?.entry.id === entry.id && open.asText === (asText || !entry.pdf)) return;
  open?.view.close();
  open = null;
  $("viewer-title").textContent = entry.name;
  $("heat").hidden = true;
  const drawn = entry.pdf && !asText;
  const view = drawn ? await openPdf(api.fileAddress(entry.id), $("pages")) : openText(await api.text(entry.id), $("pages"));
  if (turn !== latest) return view.close();
  open = { entry, view, asText: !drawn, span: null };
  $("as-text").hidden = !entry.pdf;
  $("as-text").setAttribute("aria-pressed", String(!drawn));
  setPlace({ d: entry.id });
}

export async function light(span) {
  if (!open) return;
  open.span = span;
  await open.view.light(span.boxes, span.start, span.end);
  $("link").hidden = false;
  setPlace({ s: `${span.start}-${span.end}` });
}

export function close() {
  latest++;
  open?.view.close();
  open = null;
  $("pages").replaceChildren();
  $("viewer-title").textContent = "Document";
  for (const id of ["as-text", "link", "heat"]) $(id).hidden = true;
  setPlace({ d: "", s: "" });
}

export async function heat(id, question) {
  const found = await api.heatmap(id, question);
  if (open?.entry.id !== id) return;
  const cells = found.starts.length;
  const mean = found.starts.map((_, cell) => found.layers.reduce((sum, layer) => sum + layer.heat[cell], 0) / found.layers.length);
  const canvas = $("heat-strip");
  canvas.width = cells;
  $("heat").hidden = false;
  const brush = canvas.getContext("2d");
  const colour = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim();
  brush.clearRect(0, 0, cells, 14);
  const [least, most] = [Math.min(...mean), Math.max(...mean)];
  mean.forEach((value, cell) => {
    brush.fillStyle = `rgb(${colour} / ${0.08 + (0.92 * (value - least)) / (most - least || 1)})`;
    brush.fillRect(cell, 0, 1, 14);
  });
  const rows = Math.max(...found.layers.map((layer) => layer.rows));
  $("heat-note").textContent =
    `Read closely for “${question}”: ${rows.toLocaleString()} rows stand for ${found.tokens.toLocaleString()} tokens.`;
}

$("heat-strip").addEventListener("click", (event) => open?.view.jump(event.offsetX / event.target.clientWidth));
$("as-text").addEventListener("click", async () => {
  const { entry, asText, span } = open;
  await show(entry, !asText);
  if (span) light(span);
});
$("link").addEventListener("click", async () => {
  setPlace({ d: open.entry.id, s: place().s });
  try {
    await navigator.clipboard.writeText(location.href);
    say("The link is copied: it opens this document at this place.");
  } catch {
    say(`The link is this page's address: ${location.href}`);
  }
});
