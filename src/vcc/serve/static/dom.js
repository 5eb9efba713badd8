// Elements, made from values. Texts are set as texts, never as markup.

export const $ = (id) => document.getElementById(id);

export function element(name, values = {}, ...inside) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(values)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key in made && key !== "list") made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...inside.filter((one) => one !== null && one !== undefined));
  return made;
}

export function shortened(text) {
  const words = text.replace(/\s+/g, " ");
  return words.length > 260 ? `${words.slice(0, 240)} …` : words;
}

export function scoreCell(score) {
  const bar = element("i");
  bar.style.width = `${100 * score}%`;
  return element("td", { className: "score" }, score.toFixed(2), element("span", { className: "bar", ariaHidden: "true" }, bar));
}

// Hands a file to the person.
export function save(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

let cleared;
export function say(words, seconds = 5) {
  $("status").textContent = words;
  clearTimeout(cleared);
  cleared = setTimeout(() => ($("status").textContent = ""), seconds * 1000);
}

// What the address carries: the document, a span of it, a review.
export const place = () => Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
export function setPlace(values) {
  const kept = Object.fromEntries(Object.entries({ ...place(), ...values }).filter(([, value]) => value));
  history.replaceState(null, "", `#${new URLSearchParams(kept)}`);
}
