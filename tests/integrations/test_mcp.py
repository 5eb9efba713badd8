"""MCP clients, in this process, over standard input and output and over HTTP, that read, ask and review a PDF."""

import asyncio
import json
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.documents import small_model
from tests.documents.samples import pdf_bytes
from tests.serve.running import Running, running
from vcc.cli import main
from vcc.documents.answer import ANSWER_FIELDS
from vcc.documents.document import Document, read_document
from vcc.errors import UsageError
from vcc.integrations.shelf import FolderShelf

mcp = pytest.importorskip("mcp", reason="the tests of MCP need the package mcp")

LINES = [[" ".join(small_model.text(8, seed).split()) for seed in range(start, start + 20)] for start in (0, 20)]
QUESTION = "w5 w7?"
TOKEN = "a-token-of-some-length"
TOOLS = {"read", "ask", "review", "find", "quote", "extract", "verify"}
FIELDS = {"type": "object", "properties": {"w5": {"type": "string"}}}
Calls = Callable[..., Awaitable[Any]]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return small_model.saved(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that may be read, beside a file that may not."""
    place = tmp_path_factory.mktemp("place")
    (place / "secret.txt").write_text("w1 w2 w3 secret")
    own = place / "own"
    (own / "inner").mkdir(parents=True)
    (own / "a.pdf").write_bytes(pdf_bytes(LINES, "Some words"))
    (own / "inner" / "b.txt").write_text(small_model.text(100, 5))
    (own / "broken.pdf").write_bytes(b"%PDF-1.7 broken")
    (own / "link.txt").symlink_to(place / "secret.txt")
    (own / "inside.pdf").symlink_to(own / "a.pdf")
    (own / "loop").symlink_to(own / "loop")
    return own


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def in_process(folder: Path, model: str, seconds: float = 600.0) -> Any:
    from vcc.integrations.mcp import make_server

    return make_server(FolderShelf([folder], model), str(folder), seconds)


def talk(server: Any, work: Callable[[Any], Awaitable[Any]], **options: Any) -> Any:
    async def session() -> Any:
        async with mcp.Client(server, **options) as client:
            return await work(client)

    return asyncio.run(session())


def words(result: Any) -> str:
    return " ".join(part.text for part in result.content)


async def read_ask_and_review(client: Any, pdf: str) -> None:
    """What every door must give for the PDF."""
    tools = (await client.list_tools()).tools
    assert {tool.name for tool in tools} == TOOLS
    assert all(tool.output_schema for tool in tools)
    told: list[float] = []

    async def note(done: float, total: float | None, message: str | None) -> None:
        told.append(done)

    read = (await client.call_tool("read", {"path": pdf}, progress_callback=note)).structured_content
    assert (read["title"], [part["label"] for part in read["parts"]]) == ("Some words", ["page 1", "page 2"])
    asked = (await client.call_tool("ask", {"path": pdf, "question": QUESTION, "top": 2})).structured_content
    quoted = await client.call_tool("quote", {"path": pdf, "start": 0})
    whole = quoted.structured_content["text"]
    assert asked["answers"]
    for answer in asked["answers"]:
        assert tuple(answer) == ANSWER_FIELDS
        assert whole[answer["start"] : answer["end"]] == answer["text"]
        assert answer["boxes"] and answer["boxes"][0]["page"] == answer["page"]
    page = (await client.call_tool("quote", {"path": pdf, "page": 2})).structured_content
    assert page["place"] == "page 2" and page["text"] == whole[page["start"] : page["end"]]
    review = await client.call_tool("review", {"paths": [pdf, "none.pdf"], "questions": [QUESTION, "w9?"]})
    first, second = review.structured_content["documents"]
    cell, answer = first["cells"][0][0], asked["answers"][0]
    assert cell == {**answer, "score": pytest.approx(answer["score"], abs=1e-6)}  # two questions are another batch
    assert len(first["cells"]) == 2 and not first["error"]
    assert not second["cells"] and "none.pdf" in second["error"]
    sentence = " ".join(whole.replace(".", " ").split()[:8])
    verified = (await client.call_tool("verify", {"path": pdf, "text": sentence})).structured_content
    assert [(one["verdict"], one["by"]) for one in verified["verdicts"]] == [("supported", "exact quote")]
    assert verified["verdicts"][0]["passage"]["page"] == 1 and verified["head"] is False
    filled = (await client.call_tool("extract", {"path": pdf, "schema": FIELDS})).structured_content
    assert [field["path"] for field in filled["fields"]] == ["w5"] and filled["path"] == pdf
    return told


def test_tools_in_this_process_answer_as_documents_do(folder: Path, model: str) -> None:
    server = in_process(folder, model)
    talk(server, lambda client: read_ask_and_review(client, "a.pdf"))
    asked = talk(server, lambda client: client.call_tool("ask", {"path": str(folder / "a.pdf"), "question": QUESTION}))
    document = Document(read_document(folder / "a.pdf").content, model)
    expected = [answer.as_dict() for answer in document.ask_all([QUESTION])[0].all_answers]
    assert json.loads(json.dumps(expected)) == asked.structured_content["answers"]


def test_tools_over_standard_input_and_output(folder: Path, model: str) -> None:
    options = ["-m", "vcc.cli", "mcp", str(folder), "--model", model, "--no-cache"]
    given = {**os.environ, "OMP_NUM_THREADS": "1"}
    started = mcp.StdioServerParameters(command=sys.executable, args=options, env=given)
    told = talk(started, lambda client: read_ask_and_review(client, "a.pdf"))
    assert told, "progress is reported"


@pytest.fixture(scope="module")
def service(model: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("service"), "--model", model, "--token", TOKEN) as one:
        yield one


def test_tools_over_http_serve_the_documents_of_the_service(service: Running) -> None:
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared._httpx_utils import create_mcp_http_client

    key = {"authorization": f"Bearer {TOKEN}"}
    uploaded = service.upload(pdf_bytes(LINES, "Some words"), "a.pdf", client=service.client(headers=key))
    id = uploaded.json()["id"]

    async def session() -> None:
        async with create_mcp_http_client(headers=key) as http:
            transport = streamable_http_client(f"{service.address}/mcp", http_client=http)
            async with mcp.Client(transport) as client:
                await read_ask_and_review(client, id)
                await read_ask_and_review(client, "a.pdf")
                found = (await client.call_tool("find", {"question": QUESTION})).structured_content
                assert [one["path"] for one in found["documents"]] == [id]
                missing = await client.call_tool("read", {"path": "/etc/passwd"})
                assert missing.is_error and "a.pdf" in words(missing)

    asyncio.run(session())


def test_no_stream_stays_open_that_nobody_writes_to(service: Running) -> None:
    headers = {"authorization": f"Bearer {TOKEN}", "accept": "text/event-stream"}
    assert httpx.get(f"{service.address}/mcp", headers=headers, timeout=30).status_code == 405


@pytest.mark.parametrize("key", ["", "Bearer wrong-token-of-length"])
def test_mcp_over_http_needs_the_token(service: Running, key: str) -> None:
    headers = {"authorization": key, "accept": "application/json, text/event-stream"}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = httpx.post(f"{service.address}/mcp", json=call, headers={k: v for k, v in headers.items() if v})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "link.txt",
        "loop",
        "/etc/passwd",
        "inner/../../secret.txt",
        "nothing.pdf",
        "a\0b",
        "x" * 9000,
        "~/x",
        "",
    ],
)
def test_a_path_outside_the_folders_is_a_tool_error_that_names_them(folder: Path, model: str, path: str) -> None:
    async def calls(client: Any) -> list[Any]:
        results = [await client.call_tool("ask", {"path": path, "question": QUESTION})]
        results.append(await client.call_tool("quote", {"path": path}))
        return results

    for result in talk(in_process(folder, model), calls):
        assert result.is_error and "secret" not in words(result).replace("secret.txt", "")
        assert "Traceback" not in words(result)


def test_outside_and_missing_look_the_same(folder: Path) -> None:
    """An error must not reveal which files there are elsewhere."""
    shelf, said = FolderShelf([folder], None), []
    for name in ("../secret.txt", "../nothing.txt"):
        with pytest.raises(UsageError) as error:
            shelf.text(name)
        said.append(str(error.value).replace(name, ""))
    assert said[0] == said[1]


def test_links_that_stay_inside_are_read(folder: Path) -> None:
    shelf = FolderShelf([folder])
    assert shelf.text("inside.pdf").text == shelf.text("a.pdf").text
    assert [Path(name).name for name in shelf.names("")] == ["a.pdf", "broken.pdf", "b.txt", "inside.pdf"]


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("w1 w2")
    shelf = FolderShelf([tmp_path])
    assert shelf.text("a.txt").text == "w1 w2"
    (tmp_path / "a.txt").write_text("w3 w4 w5")
    assert shelf.text("a.txt").text == "w3 w4 w5"


@pytest.mark.parametrize(
    ("tool", "given", "said"),
    [
        ("ask", {"path": "broken.pdf", "question": QUESTION}, "broken PDF"),
        ("ask", {"path": "inner", "question": QUESTION}, "is a folder"),
        ("ask", {"path": "a.pdf", "question": " ?"}, "no word"),
        ("ask", {"path": "a.pdf", "question": "w" * 5000}, "5,000 characters"),
        ("ask", {"path": "a.pdf", "question": QUESTION, "top": 0}, "must lie in 1..20"),
        ("ask", {"path": 5, "question": QUESTION}, "path"),
        ("ask", {}, "path"),
        ("quote", {"path": "a.pdf", "page": 3}, "page 1 to page 2"),
        ("quote", {"path": "inner/b.txt", "page": 1}, "no pages"),
        ("quote", {"path": "a.pdf", "start": 10**9}, "must be non-empty"),
        ("quote", {"path": "a.pdf", "start": -5}, "must be non-empty"),
        ("review", {"paths": []}, "1 to 50"),
        ("review", {"paths": ["a.pdf"] * 51}, "1 to 50"),
        ("review", {"paths": ["a.pdf"], "questions": ["w1?"] * 101}, "1 to 100"),
        ("find", {"question": QUESTION, "folder": "a.pdf"}, "is a file"),
        ("extract", {"path": "a.pdf", "schema": {"type": "array"}}, "must be an object"),
        ("extract", {"path": "a.pdf", "schema": 5}, "schema"),
        ("extract", {"path": "none.pdf", "schema": FIELDS}, "no such file"),
        ("verify", {"path": "a.pdf", "text": "..."}, "no sentence"),
        ("verify", {"path": "a.pdf", "text": "w" * 30_000}, "30,000 characters"),
        ("verify", {"path": "../secret.txt", "text": "w1 w2 w3 secret"}, "no such file"),
        ("nothing", {}, "nothing"),
    ],
)
def test_a_mistake_is_a_tool_error_that_says_what_to_do(
    folder: Path, model: str, tool: str, given: dict[str, Any], said: str
) -> None:
    async def call(client: Any) -> Any:
        try:
            return await client.call_tool(tool, given)
        except mcp.MCPError as error:  # an unknown tool
            return error

    result = talk(in_process(folder, model), call)
    text = str(result) if isinstance(result, Exception) else words(result)
    assert said in text and "Traceback" not in text


def test_find_ranks_the_documents_of_a_folder_and_names_what_it_left_out(folder: Path, model: str) -> None:
    found = talk(in_process(folder, model), lambda client: client.call_tool("find", {"question": QUESTION, "top": 2}))
    documents = found.structured_content["documents"]
    assert len(documents) == 2 and documents[0]["relevance"] >= documents[1]["relevance"]
    assert any("broken.pdf" in one for one in found.structured_content["left_out"])


def test_find_leaves_out_a_file_that_is_gone_since_it_was_found(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2):
        (tmp_path / f"{number}.txt").write_text(small_model.text(60, number))
    find = FolderShelf.find

    def found_then_gone(self: FolderShelf, *given: Any) -> Any:
        found = find(self, *given)
        Path(found.matches[0][0]).unlink()
        return found

    monkeypatch.setattr(FolderShelf, "find", found_then_gone)
    found = talk(in_process(tmp_path, model), lambda client: client.call_tool("find", {"question": QUESTION}))
    [left] = found.structured_content["documents"]
    assert Path(left["path"]).exists() and "no such file" in found.structured_content["left_out"][0]


def test_find_reads_a_folder_once_and_then_only_what_is_new(
    tmp_path: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from vcc.fleet.job import Doing

    own, read, reading = tmp_path / "own", [], Doing.read
    (own / "inner").mkdir(parents=True)
    monkeypatch.setattr(Doing, "read", lambda self, data, name: (read.append(name), reading(self, data, name))[1])
    for number in range(3):
        (own / f"{number}.txt").write_text(small_model.text(60, number).replace("w50", "w0").replace("w51", "w0"))
    shelf = FolderShelf([own], model)
    ignored = lambda done, total: None
    assert len(shelf.find("w50 w51?", "", 2, ignored).matches) == 2 and sorted(read) == ["0.txt", "1.txt", "2.txt"]
    (own / "inner" / "new.txt").write_text("w50 w51 w52. " * 20)
    read.clear()
    found = shelf.find("w50 w51?", "", 2, ignored)
    assert read == ["inner/new.txt"] and Path(found.matches[0][0]).name == "new.txt"
    inner = shelf.find("w1?", "inner", 2, ignored)
    assert [Path(name).name for name, _ in inner.matches] == ["new.txt"] and read == ["inner/new.txt"]
    (own / "0.txt").unlink()
    assert "0.txt" not in {Path(name).name for name, _ in shelf.find("w1?", "", 9, ignored).matches}


def test_find_gives_the_order_of_vcc_find(
    folder: Path, model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = FolderShelf([folder], model).find(QUESTION, "", 3, lambda done, total: None)
    assert main(["find", str(folder), QUESTION, "--model", model, "--top", "3", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["documents"]
    assert [str(folder.resolve() / one["document"]) for one in listed] == [name for name, _ in found.matches]
    assert [one["match"] for one in listed] == pytest.approx([score for _, score in found.matches], rel=1e-4)


def test_a_call_that_takes_too_long_says_so_and_the_work_goes_on(
    folder: Path, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, asked = threading.Event(), []
    replies = FolderShelf.replies

    def slow(self: FolderShelf, name: str, questions: Sequence[str], *rest: Any) -> Any:
        assert go.wait(60)
        asked.append(questions)
        return replies(self, name, questions, *rest)

    monkeypatch.setattr(FolderShelf, "replies", slow)

    async def calls(client: Any) -> Any:
        late = await client.call_tool("ask", {"path": "a.pdf", "question": QUESTION})
        go.set()
        return late

    late = talk(in_process(folder, model, seconds=0.2), calls)
    assert late.is_error and "call again later" in words(late)
    for _ in range(600):
        if asked:
            break
        threading.Event().wait(0.1)
    assert asked


@pytest.mark.parametrize("given", [[], ["nowhere"]])
def test_the_command_needs_folders(given: list[str], capsys: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["mcp", *given]) == 2
    assert "folder" in capsys.readouterr().err


@pytest.mark.parametrize("door", ["stdio", pytest.param("http", marks=pytest.mark.slow)])
def test_hostile_calls_leave_no_traceback_and_no_leak(door: str) -> None:
    from tests.integrations.hostile import run, run_http

    tally = (run if door == "stdio" else run_http)(60)
    assert tally.bad == [] and sum(tally.kinds.values()) == 60 and tally.kinds["error"] > 20
