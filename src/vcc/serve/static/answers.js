// Questions to the open document and their answers.

import * as api from "./api.js";
import { $, element, say } from "./dom.js";
import * as viewer from "./viewer.js";

export function clear() {
  $("replies").replaceChildren();
}

$("ask-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const question = $("question").value.trim();
  const entry = await viewer.settled();
  if (!question) return $("question").focus();
  if (!entry) return say("Choose a document first.");
  $("ask-button").disabled = true;
  say("Asking…", 60);
  try {
    const [reply] = await api.ask(entry.id, [question]);
    if (viewer.current()?.id !== entry.id) return;
    const buttons = reply.answers.map((answer) => answerButton(entry, answer, question));
    const nothing = element("p", { className: "soft", textContent: "The document does not seem to say." });
    const head = element("h3", { textContent: question });
    $("replies").prepend(element("div", { className: "reply" }, head, ...(buttons.length ? buttons : [nothing])));
    say(reply.answers[0]?.sure ? `${reply.answers.length} found.` : "No sure answer.");
    buttons[0]?.click();
    if (!buttons.length) viewer.heat(entry.id, question);
  } catch (error) {
    say(error.message, 10);
  } finally {
    $("ask-button").disabled = false;
  }
});

function answerButton(entry, answer, question) {
  const words = answer.text.replace(/\s+/g, " ");
  const at = answer.sentence.indexOf(words);
  const mark = element("mark", { textContent: words });
  const sentence = at < 0 ? [mark] : [answer.sentence.slice(0, at), mark, answer.sentence.slice(at + words.length)];
  const bar = element("i");
  bar.style.width = `${100 * answer.score}%`;
  const doubt = answer.sure ? null : element("span", { className: "badge", textContent: "doubtful" });
  const score = element("span", { textContent: `score ${answer.score.toFixed(2)}` });
  return element(
    "button",
    { type: "button", className: answer.sure ? "answer" : "answer doubtful", onclick: choose },
    element("span", { className: "sentence" }, ...sentence),
    element("span", { className: "place" }, element("span", { textContent: answer.place }), doubt, score),
    element("span", { className: "bar", ariaHidden: "true" }, bar),
  );
  async function choose(event) {
    document.querySelectorAll(".answer").forEach((one) => one.removeAttribute("aria-current"));
    event.currentTarget.setAttribute("aria-current", "true");
    try {
      await viewer.light(answer);
      await viewer.heat(entry.id, question);
    } catch (error) {
      say(error.message);
    }
  }
}

document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, textarea, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") {
    event.preventDefault();
    return $("question").focus();
  }
  const step = { j: 1, k: -1 }[event.key];
  const all = [...document.querySelectorAll(".answer")];
  if (!step || !all.length) return;
  const at = all.findIndex((one) => one.getAttribute("aria-current"));
  const next = all[(at + step + all.length) % all.length];
  next.focus();
  next.click();
});
