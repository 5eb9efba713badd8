// Reviews: the same questions to several documents, a table with filters, and spreadsheets.

import * as api from "./api.js";
import { $, element, place, say, scoreCell, setPlace, shortened } from "./dom.js";

let chosen = () => []; // ids of the documents to review
let opened = () => {}; // (id, answer): show a place
let own = null; // questions from a file
let shown = null; // the review

export function start(chooses, opens) {
  [chosen, opened] = [chooses, opens];
  const { r } = place();
  if (/^[0-9a-f]{32}$/.test(r)) follow(r);
}

function ownQuestions() {
  if ($("review-form").elements.kind.value === "clauses") return null;
  if (own) return own;
  return $("own").value.split("\n").map((line) => line.trim()).filter(Boolean).map((line) => {
    const [, name, question] = line.match(/^([^:?]{1,60}):\s+(.+)$/) ?? [null, "", line];
    return { name, question };
  });
}

$("own-file").addEventListener("change", async (event) => {
  const [file] = event.target.files;
  try {
    own = file ? await api.questionsOf(file) : null;
    $("review-form").elements.kind.value = "own";
    if (own) $("own").value = own.map((one) => (one.name ? `${one.name}: ${one.question}` : one.question)).join("\n");
  } catch (error) {
    say(error.message, 10);
  }
});
$("own").addEventListener("input", () => {
  own = null;
  $("review-form").elements.kind.value = "own";
});

$("review-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if ($("review-form").classList.contains("small")) return unfold(true);
  const questions = ownQuestions();
  if (!chosen().length) return say("There is no document to review.");
  if (questions && !questions.length) return say("Write a question first, or take the clauses.");
  try {
    follow((await api.startReview(chosen(), questions)).id);
  } catch (error) {
    say(error.message, 10);
  }
});

async function follow(id) {
  try {
    draw(await api.review(id));
  } catch (error) {
    setPlace({ r: "" });
    return say(error.message);
  }
  setPlace({ r: id });
  unfold(false);
  api.follow(`/v1/reviews/${id}`, draw);
}

// The form is folded away while a table is shown.
function unfold(open) {
  $("review-form").classList.toggle("small", !open);
  $("review-button").textContent = open ? "Review" : "New review";
}

function draw(review) {
  shown = review;
  $("review-result").hidden = false;
  $("review-progress").max = Math.max(review.total, 1);
  $("review-progress").value = review.done;
  $("review-state").textContent = review.error || (review.state === "ready" ? "ready" : `${review.done} of ${review.total}`);
  for (const kind of ["xlsx", "csv"]) $(kind).href = `/v1/reviews/${review.id}/review.${kind}`;
  const wanted = $("filter-document").value;
  $("filter-document").replaceChildren(element("option", { value: "", textContent: "all" }),
    ...review.rows.map((row) => element("option", { value: row.id, textContent: row.document })));
  $("filter-document").value = review.rows.some((row) => row.id === wanted) ? wanted : "";
  fill();
}

const stateOf = (cell) => (!cell.length ? "missing" : cell[0].sure ? "found" : "doubtful");

function fill() {
  const [state, search] = [$("filter-state").value, $("filter-text").value.trim().toLowerCase()];
  const body = [];
  for (const row of shown.rows) {
    if ($("filter-document").value && $("filter-document").value !== row.id) continue;
    const lines = row.error ? [element("tr", { className: "none" }, element("td", { colSpan: 4, textContent: row.error }))] : [];
    row.cells.forEach((cell, number) => {
      const question = shown.questions[number];
      const words = `${question.name} ${question.question} ${cell.map((one) => one.text).join(" ")}`.toLowerCase();
      if ((!state || state === stateOf(cell)) && words.includes(search)) lines.push(line(row, question, cell));
    });
    if (lines.length) {
      const head = element("th", { colSpan: 4, scope: "rowgroup", textContent: row.document });
      body.push(element("tr", { className: "file" }, head), ...lines);
    }
  }
  const nothing = element("tr", { className: "none" }, element("td", { colSpan: 4, textContent: "Nothing to show yet." }));
  $("table").tBodies[0].replaceChildren(...(body.length ? body : [nothing]));
}

function line(row, question, cell) {
  const head = element("th", { scope: "row", textContent: question.name || question.question, title: question.question });
  if (!cell.length) return element("tr", { className: "none" }, head, element("td", { textContent: "not found" }), element("td"), element("td"));
  const answers = cell.map((one) => element("div", {}, ...(one.sure ? [] : [element("span", { className: "badge", textContent: "doubtful" }), " "]),
    element("button", { type: "button", className: "open", textContent: shortened(one.text), onclick: () => opened(row.id, one) })));
  const places = cell.map((one) => element("div", { textContent: one.place }));
  return element("tr", { className: cell[0].sure ? "" : "doubtful" }, head, element("td", { className: "several" }, ...answers),
    element("td", { className: "place" }, ...places), scoreCell(cell[0].score));
}

for (const id of ["filter-document", "filter-state", "filter-text"]) $(id).addEventListener("input", () => shown && fill());
