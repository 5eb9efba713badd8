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
