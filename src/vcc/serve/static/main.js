// The page: the list of documents, what is open, and which of the views is shown.

import * as answers from "./answers.js";
import * as api from "./api.js";
import * as check from "./check.js";
import { $, element, place, say, setPlace } from "./dom.js";
import * as find from "./find.js";
import * as form from "./form.js";
import * as review from "./review.js";
import * as viewer from "./viewer.js";

const entries = new Map(); // id -> document, the latest first
const ticked = new Set();
const followed = new Set();
const VIEWS = ["ask", "review", "form", "check"];

function draw() {
  $("empty").hidden = entries.size > 0;
  const focused = document.activeElement?.dataset?.key;
  $("list").replaceChildren(...[...entries.values()].sort((a, b) => b.uploaded - a.uploaded).map(line));
  if (focused) document.querySelector(`[data-key="${focused}"]`)?.focus();
}

function line(entry) {
  const open = viewer.current()?.id === entry.id;
  const tick = element("input", { type: "checkbox", checked: ticked.has(entry.id), ariaLabel: `Review ${entry.name}`,
    onchange: (event) => (event.target.checked ? ticked.add(entry.id) : ticked.delete(entry.id)) });
  const button = element("button", { type: "button", className: "open", textContent: entry.name, disabled: entry.state !== "ready",
    onclick: () => choose(entry) });
  if (open) button.setAttribute("aria-current", "true");
  const remove = element("button", { type: "button", className: "delete", textContent: "×", ariaLabel: `Delete ${entry.name}`,
    onclick: () => forget(entry) });
  for (const [one, name] of [[tick, "t"], [button, "o"], [remove, "d"]]) one.dataset.key = name + entry.id;
  const made = element("li", { className: open ? "on" : "" }, tick, button, remove, about(entry));
  if (entry.state === "waiting" || entry.state === "reading") {
    const bar = element("progress", { ariaLabel: `Reading ${entry.name}` });
    if (entry.total) Object.assign(bar, { max: entry.total, value: entry.done });
    made.append(bar);
  }
  return made;
}

function about(entry) {
  const pages = entry.pages ? `${entry.pages} page${entry.pages > 1 ? "s" : ""}, ` : "";
  const words = {
    ready: `${pages}${entry.tokens.toLocaleString()} tokens${entry.notes.length ? ` · ${entry.notes.join("; ")}` : ""}`,
    failed: `cannot be read: ${entry.error}`,
    waiting: entry.error ? `waiting: ${entry.error}` : "waiting",
    reading: entry.total ? `reading, ${Math.round((100 * entry.done) / entry.total)}%` : "opening",
  }[entry.state];
  return element("div", { className: entry.state === "failed" ? "about error" : "about", textContent: words });
}

function keep(entry) {
  entries.set(entry.id, entry);
  if ((entry.state === "waiting" || entry.state === "reading") && !followed.has(entry.id)) {
    followed.add(entry.id);
    api.follow(`/v1/documents/${entry.id}`, (now) => {
      entries.set(now.id, now);
      draw();
      if (now.state === "ready" && !viewer.current()) choose(now);
      if (now.state === "ready") say(`${now.name} is read: ${now.tokens.toLocaleString()} tokens.`);
      if (now.state === "failed") say(`${now.name} cannot be read: ${now.error}`, 10);
    });
  }
}

async function choose(entry, asText) {
  const another = viewer.current()?.id !== entry.id;
  try {
    if (another) {
      for (const view of [answers, form, check]) view.clear();
      setPlace({ s: "" });
    }
    await viewer.show(entry, asText);
    for (const name of [$("ask-name"), ...document.querySelectorAll(".open-name")]) name.textContent = entry.name;
    draw();
  } catch (error) {
    say(error.message || "The document cannot be shown.", 10);
  }
}

async function forget(entry) {
  try {
    await api.remove(entry.id);
    entries.delete(entry.id);
    ticked.delete(entry.id);
    if (viewer.current()?.id === entry.id) {
      viewer.close();
      for (const view of [answers, form, check]) view.clear();
    }
    draw();
    say(`${entry.name} is deleted.`);
  } catch (error) {
    say(error.message);
  }
}

async function add(files) {
  for (const file of files) {
    try {
      say(`Sending ${file.name}…`, 60);
      keep(await api.upload(file));
      say(`${file.name} is being read.`);
    } catch (error) {
      say(`${file.name}: ${error.message}`, 10);
    }
    draw();
  }
}

function showView(name) {
  for (const view of VIEWS) {
    $(view).hidden = view !== name;
    $(`show-${view}`).setAttribute("aria-pressed", String(view === name));
  }
  setPlace({ v: name === "ask" ? "" : name });
}

async function openAt(id, answer) {
  const entry = entries.get(id);
  if (!entry) return say("This document was deleted.");
  await choose(entry);
  await viewer.light(answer);
}

$("file").addEventListener("change", (event) => {
  add([...event.target.files]);
  event.target.value = "";
});
for (const name of ["dragenter", "dragover"]) document.addEventListener(name, (event) => {
  event.preventDefault();
  $("drop").classList.add("over");
});
for (const name of ["dragleave", "drop"]) document.addEventListener(name, (event) => {
  event.preventDefault();
  $("drop").classList.remove("over");
  if (name === "drop") add([...event.dataTransfer.files]);
});
for (const view of VIEWS) $(`show-${view}`).addEventListener("click", () => showView(view));

async function begin() {
  const { d, s, v } = place();
  showView(VIEWS.includes(v) ? v : "ask");
  for (const entry of await api.documents()) keep(entry);
  draw();
  find.start(openAt, (id) => entries.has(id) && choose(entries.get(id)));
  review.start(() => (ticked.size ? [...ticked] : [...entries.values()].filter((one) => one.state === "ready").map((one) => one.id)), openAt);
  const [, start, end] = (s ?? "").match(/^(\d+)-(\d+)$/) ?? [];
  if (!d) return;
  if (!entries.has(d)) return say("The document of this link is not here any more.", 10);
  await choose(entries.get(d));
  if (start) await viewer.light(await api.span(d, start, end));
}

begin().catch((error) => say(error.message, 30));
