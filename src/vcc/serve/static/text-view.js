// A document as text, a paragraph an element, with a span lit up in it.

import { element } from "./dom.js";

export function openText({ text, parts }, container) {
  const paragraphs = [];
  const inside = [];
  for (const part of parts) {
    const headed = text.startsWith(part.label, part.start);
    if (part.label && !headed && part.label !== "beginning") inside.push(element("h3", { textContent: part.label }));
    for (let start = part.start; start < part.end;) {
      const blank = text.indexOf("\n\n", start);
      const end = blank < 0 || blank >= part.end ? part.end : blank + 2;
      const shown = element("p", { textContent: text.slice(start, end).trimEnd() });
      paragraphs.push({ start, end, shown });
      inside.push(shown);
      start = end;
    }
  }
  container.replaceChildren(element("article", { className: "text" }, ...inside));
  let lit = [];

  function light(_, start, end) {
    for (const { shown } of lit) shown.textContent = shown.textContent;
    lit = paragraphs.filter((one) => one.start < end && start < one.end);
    let first = null;
    for (const { start: from, shown } of lit) {
      const words = shown.textContent;
      const [a, b] = [Math.max(start - from, 0), Math.max(Math.min(end - from, words.length), 0)];
      const mark = element("mark", { textContent: words.slice(a, b) });
      shown.replaceChildren(words.slice(0, a), mark, words.slice(b));
      first ??= mark;
    }
    first?.scrollIntoView({ block: "center" });
  }

  function jump(share) {
    const offset = share * text.length;
    (paragraphs.find((one) => one.end > offset) ?? paragraphs.at(-1)).shown.scrollIntoView();
  }

  return { light, jump, close: () => {} };
}
