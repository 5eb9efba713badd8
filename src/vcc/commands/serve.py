"""`vcc serve`: the service and its page."""

import logging
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from vcc.commands.shared.documents import Model
from vcc.errors import Failure, UsageError
from vcc.files import one_at_a_time

if TYPE_CHECKING:
    from vcc.serve.guard import Guard
    from vcc.serve.settings import ServiceSettings

log = logging.getLogger("vcc.serve")
INSTALL = "pip install 'vcc-transformers[serve]'"
TOKEN = "VCC_TOKEN"


def serve(
    host: Annotated[str, "address to listen on; other than the local host needs a token"] = "127.0.0.1",
    port: Annotated[int, "port to listen on; 0 chooses a free one"] = 8756,
    token: Annotated[str | None, f"token that every request must carry; safer in the environment, as {TOKEN}"] = None,
    folder: Annotated[Path | None, "folder for documents and indexes (default: in the user's cache)"] = None,
    model: Model = None,
    max_size: Annotated[float, "maximum file size in MB"] = 50,
    max_pages: Annotated[int, "maximum pages per document"] = 2_000,
    max_tokens: Annotated[int, "maximum tokens per document"] = 1_000_000,
    max_questions: Annotated[int, "maximum questions per request"] = 100,
    max_requests: Annotated[int, "maximum concurrent requests"] = 64,
    wait: Annotated[float, "seconds before a waiting call returns 504"] = 120,
    body: Annotated[float, "maximum seconds to receive a request"] = 60,
    reading: Annotated[float, "maximum seconds to read a file"] = 120,
    readers: Annotated[int, "files read concurrently, each in its own process"] = 2,
    keep_size: Annotated[float, "maximum size of the folder in MB"] = 10_000,
    keep_hours: Annotated[float, "hours after which a document is deleted"] = 720,
) -> None:
    """Serve a web page and an HTTP API: upload, ask and review documents, and see answers on their pages."""
    try:
        import uvicorn  # noqa: F401  whether it is installed

        from vcc.serve.app import make_app
        from vcc.serve.settings import ServiceSettings
    except ImportError as error:
        raise UsageError(f"the service needs {error.name}: {INSTALL}") from error
    from vcc.documents.store import cache_folder

    settings = ServiceSettings(
        folder=folder or cache_folder() / "service",
        host=host,
        port=port,
        token=token if token is not None else os.environ.get(TOKEN, ""),
        model=model,
        file_bytes=int(max_size * 1e6),
        pages=max_pages,
        tokens=max_tokens,
        questions=max_questions,
        at_once=max_requests,
        wait_seconds=wait,
        body_seconds=body,
        reading_seconds=reading,
        readers=readers,
        kept_bytes=int(keep_size * 1e6),
        kept_hours=keep_hours,
    )
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    settings.folder.mkdir(parents=True, exist_ok=True)
    with one_at_a_time(settings.folder / "lock", Failure(f"{settings.folder} is in use by another service")):
        report_sandbox()
        run(make_app(settings), settings)


def run(app: "Guard", settings: "ServiceSettings") -> None:
    """Serve until the process is told to end."""
    import uvicorn

    from vcc.serve.connections import ACCEPTED_IN_A_STEP, limited_connections, most_connections

    options = uvicorn.Config(
        app,
        host=settings.host,
        port=settings.port,
        access_log=False,  # its lines hold what users write; the guard has its own
        log_level="error",  # a line for each broken request would fill a disk
        server_header=False,
        date_header=False,
        http=limited_connections(most_connections(settings.connections)),
        timeout_keep_alive=10,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=64_000,
        backlog=ACCEPTED_IN_A_STEP,
        ws="none",
    )
    with listening(settings.host, settings.port) as opened:
        name, shown = opened.getsockname()[:2]
        print(f"vcc: at http://{f'[{name}]' if ':' in name else name}:{shown}", flush=True)
        uvicorn.Server(options).run(sockets=[opened])


def report_sandbox() -> None:
    """Log what a hostile file could do here, if it took over the process that reads it."""
    from vcc.documents.isolated import NoProcessError, open_doors

    try:
        for words in open_doors():
            log.warning("files are read without a full sandbox: %s", words)
    except NoProcessError as error:
        log.warning("files cannot be read now: %s", error)


def listening(host: str, port: int) -> socket.socket:
    """A listening socket, opened here to print its port before the server starts."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM)[0]
        opened = socket.socket(family, kind, protocol)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        opened.bind(address)
        opened.listen(512)
    except OSError as error:
        raise UsageError(f"cannot listen on {host}, port {port}: {error.strerror or error}") from error
    return opened
