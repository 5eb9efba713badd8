"""The heat map over the document's text, as one HTML page.

Neighbouring tokens that every layer read alike share one element, and elements of the same history share one class;
choosing a layer then rewrites one small style sheet, so a whole book stays light.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import escape
from textwrap import shorten

import numpy as np

from vcc.documents.answers import place_of
from vcc.documents.reading import Reading, heat
from vcc.documents.show.page import blocks, cuts, facts_html, page
from vcc.documents.text import BEGINNING, Document

WIDTH = 1200  # columns of the overview strips
BLOCK = 1500  # characters laid out together

STYLE = """
@media screen { html, body { height: 100%; } body { display: flex; flex-direction: column; }
  main { flex: 1; overflow-y: auto; } }
header { padding: .9rem 1.6rem .8rem; background: var(--card); border-bottom: 1px solid var(--line); }
.question { display: flex; flex-wrap: wrap; gap: 0 1rem; font-size: 1.05rem; font-weight: 600; margin: .5rem 0 .55rem; }
.question > * { font: normal 400 .95rem/1.65 system-ui, sans-serif; } .question em { color: var(--soft); }
.strips { display: grid; grid-template-columns: auto 1fr auto; gap: 3px .8rem; align-items: center; font-size: .8rem; }
.strips button { font: inherit; color: var(--soft); background: none; border: 0; padding: 0 .4rem; text-align: left;
  border-radius: 4px; cursor: pointer; white-space: nowrap; }
.strips button[aria-pressed=true] { background: rgb(var(--heat)); color: #1d1400; }
.strips span { color: var(--soft); font-variant-numeric: tabular-nums; white-space: nowrap; text-align: right; }
.strips canvas { display: block; width: 100%; height: 12px; border-radius: 2px; cursor: crosshair;
  background: var(--paper); outline: 1px solid var(--line); image-rendering: pixelated; }
.strips canvas.on { height: 20px; }
.map { position: relative; } .map i { position: absolute; top: -3px; bottom: -3px; width: 2px; background: var(--good);
  pointer-events: none; }
.legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin-top: .6rem; font-size: .8rem; color: var(--soft); }
.legend b { display: inline-block; width: 1.6em; height: .8em; border-radius: 2px; margin-right: .4em;
  vertical-align: -.05em; outline: 1px solid var(--line); }
.text { max-width: 47rem; margin: 0 auto; padding: 1.5rem 1.6rem 40vh; }
.block { contain-intrinsic-size: auto 32em; scroll-margin-top: 1rem; margin-bottom: 0; }
.text u { text-decoration: none; background: rgb(var(--heat) / calc(var(--v, 0) * .62));
  color: color-mix(in srgb, var(--ink) calc(48% + var(--v, 0) * 52%), var(--paper)); }
.answer { box-shadow: 0 0 0 2px var(--good); border-radius: 2px; scroll-margin-top: 30vh; }
"""

SCRIPT = """
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
"""


def heatmap_html(document: Document, reading: Reading, facts: Mapping[str, str]) -> str:
    """The page for `vcc see --html`: an overview strip a layer, and the text shaded by how finely it was read."""
    starts, codes, histories = runs(reading)
    overall = reading.openness.mean(0, keepdims=True)
    strips = [heat(overall, min(WIDTH, overall.shape[1]))[0], *heat(reading.openness, min(WIDTH, overall.shape[1]))]
    data = {
        "tokens": len(reading.offsets),
        "finest": len(reading.scales) - 1,
        "histories": histories,
        "strips": ["".join(f"{int(value * 255):02x}" for value in strip) for strip in strips],
    }
    body = (
        f"<header><h1>{escape(document.title)}</h1>{facts_html(document, facts)}"
        f'<p class="question">{escape(reading.question)}{_found(document, reading)}</p>'
        f"{_overview(reading)}{_legend(reading)}</header>\n"
        f'<main><div class="text">{_text(document, reading, starts, codes)}</div></main>'
    )
    script = f"const data = {json.dumps(data)};{SCRIPT}"  # numbers and digits only: nothing to escape
    return page(f"{document.title}: {reading.question}", STYLE, body, script)


def runs(reading: Reading) -> tuple[list[int], list[int], list[str]]:
    """Stretches that no layer divides: their first tokens, the number of their history, and the distinct histories.

    A history is a string with one digit a layer, the scale the stretch was read at.
    """
    levels = reading.levels  # (L, n)
    changes = np.flatnonzero((levels[:, 1:] != levels[:, :-1]).any(0)) + 1
    starts = [0, *changes.tolist()]
    spelled = ["".join(map(str, levels[:, start])) for start in starts]
    histories = sorted(set(spelled))
    number = {history: index for index, history in enumerate(histories)}
    return starts, [number[history] for history in spelled], histories


def _found(document: Document, reading: Reading) -> str:
    """The best answer, as a link to its place."""
    if not reading.answers:
        return "<em>no answer found</em>"
    best = reading.answers[0]
    text = escape(shorten(best.text, 110, placeholder=" …"))
    return f'<a href="#answer">{text}</a><em>{escape(place_of(document, best))}, score {best.score:.2f}</em>'


def _overview(reading: Reading) -> str:
    marks = "".join(
        f'<i style="left:{100 * reading.token_at(answer.start) / len(reading.offsets):.2f}%"></i>'
        for answer in reading.answers[:1]
    )
    names = [
        ("all layers", ""),
        *((name, f"{seen:,} rows") for name, seen in zip(reading.layers, reading.rows, strict=True)),
    ]
    rows = "".join(
        f'<button type="button">{escape(name)}</button>'
        f'<div class="map"><canvas></canvas>{marks}</div><span>{seen}</span>'
        for name, seen in names
    )
    return f'<div class="strips">{rows}</div>'


def _legend(reading: Reading) -> str:
    finest = len(reading.scales) - 1
    items = [
        f'<span><b style="background:rgb(var(--heat) / {0.62 * level / finest:.2f})"></b>'
        f"{'every token' if scale == 1 else f'{scale} tokens as one row'}</span>"
        for level, scale in enumerate(reading.scales)
    ]
    answer = '<span><b style="outline:2px solid var(--good)"></b>answer</span>' if reading.answers else ""
    help_ = "<span>← → choose the layer, click a strip to go there</span>"
    return f'<div class="legend">{"".join(items)}{answer}{help_}</div>'


def _text(document: Document, reading: Reading, starts: list[int], codes: list[int]) -> str:
    """The text in blocks; a run owns the characters from its first token to the next run's."""
    edges = [0, *(int(reading.offsets[start, 0]) for start in starts[1:]), len(document.text)]
    best = reading.answers[0] if reading.answers else None
    lit = (best.start, best.end) if best else ()
    out, run = [], 0
    for label, start, end in blocks(document, BLOCK):
        if label and label != BEGINNING and not document.text.startswith(label, start):
            out.append(f'<h2 class="part">{escape(label)}</h2>')
        while edges[run + 1] <= start:
            run += 1
        last = run
        while edges[last] < end:
            last += 1
        pieces = []
        for a, b in cuts(start, end, [*edges[run:last], *lit]):
            while edges[run + 1] <= a:
                run += 1
            answer = ' class="answer"' if best and best.start <= a < best.end else ""
            anchor = ' id="answer"' if best and a == best.start else ""
            shade = f'<u class="h{codes[run]}">{escape(document.text[a:b])}</u>'
            pieces.append(f"<span{answer}{anchor}>{shade}</span>" if answer else shade)
        out.append(f'<div class="block" data-t="{reading.token_at(start)}">{"".join(pieces)}</div>')
    return "\n".join(out)
