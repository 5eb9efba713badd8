// One question to all documents: the best answers, then the documents that match.

import * as api from "./api.js";
import { $, element, say } from "./dom.js";

export function start(openAt, open) {
  $("find-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const question = $("find").value.trim();
    if (!question) return $("found").replaceChildren();
    $("find-button").disabled = true;
    say("Searching…", 60);
    try {
      const { documents, answers } = await api.find(question);
      const answered = answers.map((answer) => line(answer.name, `${answer.text.replace(/\s+/g, " ")} (${answer.place})`,
        () => openAt(answer.document, answer)));
      const asked = new Set(answers.map((answer) => answer.document));
      const others = documents.filter((one) => !asked.has(one.id)).map((one) => line(one.name, "", () => open(one.id)));
      $("found").replaceChildren(...answered, ...others);
      say(documents.length ? `${answers.length} answers, ${documents.length} documents.` : "No document is read yet.");
    } catch (error) {
      say(error.message, 10);
    } finally {
      $("find-button").disabled = false;
    }
  });
}

function line(name, words, onclick) {
  const about = element("div", { className: "about", textContent: words });
  return element("li", {}, element("button", { type: "button", className: "open", textContent: name, onclick }), about);
}
