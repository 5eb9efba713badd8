// `data` stands before this script on the page: tokens, finest, histories, strips (heatmap.py makes it).
const sheet = document.head.appendChild(document.createElement("style"));
const buttons = [...document.querySelectorAll("button")], strips = [...document.querySelectorAll("canvas")];
const dark = matchMedia("(prefers-color-scheme: dark)"), blocks = [...document.querySelectorAll(".block")];
const main = document.querySelector("main");
const at = (history, layer) => layer ? history[layer - 1] / data.finest
  : [...history].reduce((sum, level) => sum + +level, 0) / data.finest / history.length;
function paint() {
  const heat = getComputedStyle(document.documentElement).getPropertyValue("--heat").trim().split(" ").join(",");
  strips.forEach((canvas, layer) => {
    const pen = canvas.getContext("2d"), row = data.strips[layer];
    canvas.width = row.length / 2; canvas.height = 1;
    for (let x = 0; x < canvas.width; x++) {
      pen.fillStyle = `rgba(${heat},${parseInt(row.substr(2 * x, 2), 16) / 255})`;
      pen.fillRect(x, 0, 1, 1);
    }
  });
}
function choose(layer) {
  sheet.textContent = data.histories.map((history, i) => `.h${i}{--v:${at(history, layer).toFixed(3)}}`).join("");
  buttons.forEach((button, i) => button.setAttribute("aria-pressed", i == layer));
  strips.forEach((canvas, i) => canvas.classList.toggle("on", i == layer));
}
function jump(share) {
  const token = share * data.tokens, first = block => block ? +block.dataset.t : data.tokens;
  const i = Math.max(blocks.findLastIndex(block => first(block) <= token), 0), block = blocks[i];
  block.scrollIntoView();
  const inside = (token - first(block)) / Math.max(first(blocks[i + 1]) - first(block), 1);
  main.scrollTop += inside * block.offsetHeight - main.clientHeight / 3;
}
buttons.forEach((button, layer) => button.onclick = () => choose(layer));
strips.forEach((canvas, layer) => canvas.onclick = event => {
  choose(layer); jump(event.offsetX / canvas.clientWidth);
});
addEventListener("keydown", event => {
  const step = {ArrowLeft: -1, ArrowRight: 1}[event.key], now = buttons.findIndex(b => b.ariaPressed == "true");
  if (step) choose(Math.min(Math.max(now + step, 0), buttons.length - 1));
});
dark.addEventListener("change", paint); paint(); choose(0);
const here = document.getElementById(location.hash.slice(1) || "answer");
if (here) here.scrollIntoView({behavior: "instant"});
