// Statements: every sentence with its verdict and the passage that decides it.

import * as api from "./api.js";
import { $, element, say, shortened } from "./dom.js";
import * as viewer from "./viewer.js";

export function clear() {
  $("verdicts").replaceChildren();
  $("check-note").hidden = true;
}

$("check-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  const text = $("statement").value.trim();
  const entry = await viewer.settled();
  if (!text) return $("statement").focus();
  if (!entry) return say("Choose a document first.");
  $("check-button").disabled = true;
  say("Checking…", 120);
  try {
    const { verdicts, head } = await api.verify(entry.id, text);
    if (viewer.current()?.id !== entry.id) return;
    $("check-note").hidden = head;
    $("verdicts").replaceChildren(...verdicts.map(line));
    const first = verdicts.find((one) => one.passage);
    if (first) await viewer.light(first.passage);
    say(`${verdicts.length} sentence${verdicts.length === 1 ? "" : "s"} checked.`);
  } catch (error) {
    say(error.message, 10);
  } finally {
    $("check-button").disabled = false;
  }
});

function line({ sentence, verdict, by, reason, passage, also }) {
  const badge = element("span", { className: `verdict ${verdict.replace(" ", "-")}`, textContent: verdict });
  const made = element("div", { className: "reply" }, element("p", { className: "said" }, badge, " ", sentence));
  for (const one of passage ? [passage, ...also] : []) made.append(button(one, by));
  if (reason) made.append(element("p", { className: "soft", textContent: reason }));
  return made;
}

function button(passage, by) {
  return element("button", { type: "button", className: "answer", onclick: choose },
    element("span", { className: "sentence", textContent: shortened(passage.text) }),
    element("span", { className: "place" }, element("span", { textContent: passage.place }),
      element("span", { textContent: `${by}, score ${passage.score.toFixed(2)}` })));
  async function choose() {
    try {
      await viewer.light(passage);
    } catch (error) {
      say(error.message);
    }
  }
}
