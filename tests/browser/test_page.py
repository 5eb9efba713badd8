"""The page in a real Chromium, against a real service with the bundled model: `make test-browser`.

`VCC_SCREENSHOTS=docs/service make test-browser` makes the pictures of the documentation.

Every request that does not go to the service is refused, so all of this also shows that the page works offline.
"""

import html
import io
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook

from tests.serve.running import Running, running

playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
BROWSER = os.environ.get("VCC_BROWSER") or shutil.which("chromium") or shutil.which("google-chrome") or ""
AXE = Path(os.environ.get("VCC_AXE", "out/axe/package/axe.min.js"))
SCREENSHOTS = os.environ.get("VCC_SCREENSHOTS")  # a folder: keep pictures there
NAME = "contract.pdf" if SCREENSHOTS else "contract <b>.pdf"  # a name is text, never markup
CONTRACT = Path(__file__).parents[2] / "examples" / "contract.txt"
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
SECONDS = "600"  # that anything may take: a test does not depend on the speed of the machine
QUESTION = "Which law governs this agreement?"
TRUE = (
    "This Agreement is governed by, and shall be construed in accordance with, the laws of the State of New Hampshire, "
    "without regard to its rules on conflict of laws."
)
DURATION, DATE = {"type": "string", "format": "duration"}, {"type": "string", "format": "date"}
FORM = {
    "type": "object",
    "properties": {
        "parties": {"type": "array", "items": {"type": "string"}},
        "agreement_date": DATE,
        "governing_law": {"type": "string"},
        "end_date": DATE,
        "renewal_term": DURATION,
        "notice_period": DURATION,
        "exclusivity": {"type": "boolean"},
        "best_pizza": {"type": "string", "format": "date", "description": "When was the best pizza baked?"},
    },
    "required": ["governing_law", "best_pizza"],
}
ITEMS = """async ([address, number]) => {
  const pdfjs = await import("/static/pdfjs/pdf.min.mjs");
  const pdf = await pdfjs.getDocument(address).promise;
  const page = await pdf.getPage(number);
  const [, , width, height] = page.view;
  return (await page.getTextContent()).items.map(({ str, transform, width: w }) => (
    { str, x0: transform[4] / width, x1: (transform[4] + w) / width, y: 1 - transform[5] / height }));
}"""
# At one moment: the page may be scrolling.
EDGES = """(box) => {
  const [lit, paper] = [box.getBoundingClientRect(), box.parentElement.getBoundingClientRect()];
  const [x, y] = [(value) => (value - paper.left) / paper.width, (value) => (value - paper.top) / paper.height];
  return [Number(box.parentElement.dataset.page), x(lit.left), y(lit.top), x(lit.right), y(lit.bottom)];
}"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not BROWSER, reason="no Chromium: install it, or name it in VCC_BROWSER"),
]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service"), "--wait", SECONDS) as one:
        yield one


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as started:
        chromium = started.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def contract(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The contract as the browser prints it, on several pages."""
    page = browser.new_page()
    body = "".join(f"<p>{html.escape(part)}</p>" for part in CONTRACT.read_text().split("\n\n"))
    page.set_content(f"<title>Supply agreement</title><body style='font: 11pt/1.45 serif'>{body}")
    path = tmp_path_factory.mktemp("pdf") / NAME
    page.pdf(path=str(path), format="A4", margin=dict.fromkeys(("top", "bottom", "left", "right"), "2cm"))
    page.close()
    return path


class Tab:
    """A tab that may talk to the service only, and that remembers what went wrong in it."""

    def __init__(self, browser: Any, service: Running, **options: Any) -> None:
        self.context = browser.new_context(viewport={"width": 1400, "height": 860}, **options)
        self.service, self.faults = service, []
        self.context.route("**/*", self.route)
        self.page = self.another()

    def another(self) -> Any:
        page = self.context.new_page()
        page.set_default_timeout(1000 * float(SECONDS))
        page.on("console", lambda line: self.faults.append(line.text) if line.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        return page

    def route(self, route: Any) -> None:
        if route.request.url.startswith((self.service.address, "blob:", "data:")):
            route.continue_()
        else:
            self.faults.append(f"a request to {route.request.url}")
            route.abort()

    @contextmanager
    def expected(self, word: str) -> Iterator[None]:
        """A block in which the browser reports an answer that names a mistake."""
        before = len(self.faults)
        yield
        self.faults[before:] = [fault for fault in self.faults[before:] if word not in fault]

    def close(self) -> None:
        self.context.close()
        assert self.faults == []


@pytest.fixture
def tab(browser: Any, service: Running) -> Iterator[Tab]:
    one = Tab(browser, service, accept_downloads=True)
    yield one
    one.close()


@pytest.fixture(scope="module")
def address(browser: Any, service: Running, contract: Path) -> str:
    """A link to the answer, after a person has uploaded the contract and asked."""
    tab = Tab(browser, service)
    page = tab.page
    page.goto(service.address)
    page.set_input_files("#file", str(contract))
    page.locator(".page canvas").first.wait_for()
    ask(page)
    keep(page, "ask")
    found = page.url
    tab.close()
    return str(found)


def ask(page: Any) -> None:
    page.keyboard.press("/")  # from anywhere on the page
    page.keyboard.type(QUESTION)
    page.keyboard.press("Enter")
    page.locator(".box").first.wait_for()
    page.locator("#heat").wait_for()


def keep(page: Any, name: str) -> None:
    if SCREENSHOTS:
        page.wait_for_timeout(1000)
        page.evaluate("document.getElementById('status').textContent = ''")  # it would hide something
        page.screenshot(path=f"{SCREENSHOTS}/{name}.png")


def test_the_highlight_lies_over_the_right_words(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)  # the link carries the document and the span
    page.locator(".box").first.wait_for()
    id = re.search("d=([0-9a-f]{32})", address)
    assert id is not None
    drawn = []
    for box in page.locator(".box").all():
        number, *edges = box.evaluate(EDGES)
        items = page.evaluate(ITEMS, [f"/v1/documents/{id[1]}/file", number])  # PDF.js's own reading
        line = [item for item in items if edges[1] <= item["y"] <= edges[3]]
        assert edges[0] >= min(item["x0"] for item in line) - 0.01
        assert edges[2] <= max(item["x1"] for item in line) + 0.01
        drawn.append(" ".join(item["str"] for item in line))
    words = " ".join(" ".join(drawn).split())
    assert "This Agreement is governed by" in words and "laws of the State of New Hampshire" in words
    assert 2 <= len(drawn) <= 4  # lines; how many depends on the fonts of the machine


def test_an_answer_is_found_among_all_documents(tab: Tab, address: str) -> None:
    other = tab.service.upload(b"The heron stands in the shallow water and waits for fish. " * 20, "heron.txt").json()
    page = tab.page
    page.goto(tab.service.address)
    page.get_by_label("Find in all documents").fill(QUESTION)
    page.keyboard.press("Enter")
    first = page.locator("#found li").first
    assert NAME in first.inner_text() and "New Hampshire" in first.inner_text()
    first.get_by_role("button").click()
    page.locator(".box").first.wait_for()
    assert "d=" in page.url and "s=" in page.url
    assert page.locator("#found li").filter(has_text="heron.txt").count() == 1, "it matches less, and is listed after"
    with tab.service.client() as client:  # other tests count documents
        assert client.delete(f"/v1/documents/{other['id']}").status_code == 204


def test_a_reload_and_a_second_tab_show_the_same_document(tab: Tab, address: str) -> None:
    tab.page.goto(address)
    tab.page.locator(".box").first.wait_for()
    tab.page.reload()
    tab.page.locator(".box").first.wait_for()
    second = tab.another()
    second.goto(tab.service.address)
    second.get_by_role("button", name=NAME, exact=True).click()
    ask(second)
    assert second.locator(".answer").first.inner_text() and tab.page.locator(".box").count() >= 2


def test_keys_move_between_answers_and_the_text_is_an_alternative(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    page.locator(".box").first.wait_for()
    ask(page)
    page.locator("body").click(position={"x": 500, "y": 800})
    page.keyboard.press("j")
    assert page.locator(".answer[aria-current=true]").count() == 1
    page.get_by_role("button", name="Text", exact=True).click()
    marked = page.locator(".text mark")
    marked.first.wait_for()
    assert " ".join(" ".join(marked.all_inner_texts()).split()) in " ".join(CONTRACT.read_text().split())


def test_a_review_is_filtered_and_exported(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    page.get_by_role("button", name="Review", exact=True).first.click()
    page.fill("#own", f"Law: {QUESTION}\nPizza: Which pizza is best?")
    page.locator("#review-button").click()
    page.locator("#review-state", has_text=re.compile("^ready$")).wait_for()
    assert page.locator("#table tbody tr").count() == 3
    page.select_option("#filter-state", "found")
    assert page.locator("#table tbody tr:not(.file) th").all_inner_texts() == ["Law"]
    page.select_option("#filter-state", "")
    keep(page, "review")
    with page.expect_download() as got:
        page.locator("#xlsx").click()
    sheet = load_workbook(io.BytesIO(Path(got.value.path()).read_bytes()))["Review"]
    assert [cell.value for cell in sheet[1]] == ["Document", "Law", "Pizza"]
    assert "New Hampshire" in sheet["B2"].value and "page" in sheet["B2"].comment.text
    page.get_by_role("button", name=re.compile("This Agreement is governed")).click()
    page.locator(".box").first.wait_for()


def test_a_form_is_filled_shown_on_the_page_and_downloaded(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    page.locator(".box").first.wait_for()
    page.get_by_role("button", name="Form", exact=True).click()
    page.fill("#schema", json.dumps(FORM))
    page.locator("#form-button").click()
    page.locator("#form-table tbody tr").first.wait_for()
    rows = {row.locator("th").inner_text(): row for row in page.locator("#form-table tbody tr").all()}
    assert rows["agreement_date"].locator(".value").inner_text() == "2024-02-12"
    assert "New Hampshire" in rows["governing_law"].locator(".value").inner_text()
    assert rows["best_pizza"].locator(".value").inner_text() == "not found"
    assert "best_pizza" in page.locator("#form-missing").inner_text()
    before = page.url
    rows["agreement_date"].locator(".open").click()
    page.wait_for_function("(before) => location.href !== before", arg=before)  # the place of the evidence
    page.locator(".box").first.wait_for()
    keep(page, "form")
    with page.expect_download() as got:
        page.locator("#form-json").click()
    saved = json.loads(Path(got.value.path()).read_text())
    assert saved["values"]["agreement_date"] == "2024-02-12" and saved["missing"] == ["best_pizza"]
    by_path = {field["path"]: field for field in saved["fields"]}
    assert "February 12, 2024" in by_path["agreement_date"]["evidence"]["text"]
    with page.expect_download() as got:
        page.locator("#form-xlsx").click()
    sheet = load_workbook(io.BytesIO(Path(got.value.path()).read_bytes()))["Review"]
    cells = dict(zip((cell.value for cell in sheet[1]), sheet[2], strict=True))
    assert cells["agreement_date"].value == "2024-02-12" and "page" in cells["agreement_date"].comment.text


def test_a_schema_that_is_none_says_so(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    page.get_by_role("button", name="Form", exact=True).click()
    page.fill("#schema", "{")
    page.locator("#form-button").click()
    page.get_by_text("The schema is not JSON").wait_for()
    page.fill("#schema", '{"type": "array"}')
    with tab.expected("422"):
        page.locator("#form-button").click()
        page.get_by_text("must be an object").wait_for()
    assert page.locator("#form-result").is_hidden()


def test_statements_are_checked_and_their_passages_lit(tab: Tab, address: str) -> None:
    page = tab.page
    page.goto(address)
    page.locator(".box").first.wait_for()
    page.get_by_role("button", name="Check", exact=True).click()
    page.fill("#statement", f"{TRUE} {TRUE.replace('Hampshire', 'York')} The moon is made of green cheese.")
    page.locator("#check-button").click()
    page.locator("#verdicts .verdict").nth(2).wait_for()
    said = page.locator("#verdicts .verdict").all_inner_texts()
    assert said == ["supported", "contradicted", "not found"]
    assert 'says "Hampshire", not "York"' in page.locator("#verdicts").inner_text()
    page.locator("#verdicts .answer").first.click()
    page.locator(".box").first.wait_for()
    keep(page, "check")


def test_a_file_that_cannot_be_read_says_so(tab: Tab, tmp_path: Path) -> None:
    page = tab.page
    page.goto(tab.service.address)
    evil = tmp_path / "<img src=x onerror=alert(1)>.pdf"
    evil.write_bytes(b"%PDF-1.7 nothing")
    page.set_input_files("#file", str(evil))
    page.locator("#list .error").first.wait_for()
    assert "broken PDF" in page.locator("#list .error").first.inner_text()
    page.get_by_role("button", name=f"Delete {evil.name}").click()
    page.get_by_text(f"{evil.name} is deleted.").wait_for()
    assert page.locator("#list img").count() == 0


@pytest.mark.skipif(not AXE.is_file(), reason="no axe-core: make test-browser fetches it from npm")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 390])
def test_no_accessibility_violation(browser: Any, service: Running, address: str, scheme: str, width: int) -> None:
    tab = Tab(browser, service, bypass_csp=True, color_scheme=scheme)  # axe is not part of the page
    page = tab.page
    page.set_viewport_size({"width": width, "height": 860})
    page.goto(address)
    page.locator(".box").first.wait_for()
    keep(page, f"{scheme}-{width}")
    for view in ("ask", "review", "form", "check", "docs"):
        if view == "docs":
            page.goto(f"{service.address}/docs")
            page.locator("details").first.wait_for()
        else:
            page.locator(f"#show-{view}").click()
        page.evaluate(AXE.read_text())
        found = page.evaluate("axe.run()")["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")] == []
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), f"{view} is too wide"
    tab.close()
