// The pages of a PDF, drawn by PDF.js when they come into view, with boxes over them.

import { element } from "./dom.js";
import * as pdfjs from "./pdfjs/pdf.min.mjs";

pdfjs.GlobalWorkerOptions.workerSrc = new URL("./pdfjs/pdf.worker.min.mjs", import.meta.url).href;
const FONTS = new URL("./pdfjs/standard_fonts/", import.meta.url).href;
const CMAPS = new URL("./pdfjs/cmaps/", import.meta.url).href;

export async function openPdf(address, container) {
  const task = pdfjs.getDocument({
    url: address, standardFontDataUrl: FONTS, cMapUrl: CMAPS, cMapPacked: true, isEvalSupported: false,
    enableXfa: false, disableAutoFetch: true,
  });
  const pdf = await task.promise;
  const first = (await pdf.getPage(1)).getViewport({ scale: 1 });
  const pages = [];
  for (let number = 1; number <= pdf.numPages; number++) {
    const label = element("span", { className: "number", textContent: String(number), ariaHidden: "true" });
    const page = element("div", { className: "page", role: "img", ariaLabel: `Page ${number} of ${pdf.numPages}` }, label);
    page.dataset.page = number;
    page.style.aspectRatio = `${first.width} / ${first.height}`;
    pages.push(page);
  }
  container.replaceChildren(...pages);
  const near = new IntersectionObserver((seen) => {
    for (const one of seen) if (one.isIntersecting) draw(pdf, one.target);
  }, { root: container, rootMargin: "600px 0px" });
  pages.forEach((page) => near.observe(page));

  async function light(boxes) {
    container.querySelectorAll(".box").forEach((box) => box.remove());
    let firstBox = null;
    for (const { page, x0, y0, x1, y1 } of boxes) {
      const box = element("div", { className: "box" });
      Object.assign(box.style, { left: `${100 * x0}%`, top: `${100 * y0}%`, width: `${100 * (x1 - x0)}%`,
        height: `${100 * (y1 - y0)}%` });
      await draw(pdf, pages[page - 1]); // its shape is known only then
      pages[page - 1].append(box);
      firstBox ??= box;
    }
    firstBox?.scrollIntoView({ block: "center" });
  }

  const jump = (share) => pages[Math.min(Math.floor(share * pages.length), pages.length - 1)].scrollIntoView();
  return { light, jump, close: () => { near.disconnect(); task.destroy(); } };
}

async function draw(pdf, place) {
  if (place.dataset.drawn) return;
  place.dataset.drawn = "true";
  const page = await pdf.getPage(Number(place.dataset.page));
  const flat = page.getViewport({ scale: 1 });
  place.style.aspectRatio = `${flat.width} / ${flat.height}`;
  const scale = Math.min((place.clientWidth / flat.width) * (window.devicePixelRatio || 1), 4);
  const viewport = page.getViewport({ scale: Math.max(scale, 0.5) });
  const canvas = element("canvas", { width: Math.floor(viewport.width), height: Math.floor(viewport.height) });
  place.prepend(canvas);
  await page.render({ canvas, viewport }).promise;
}
