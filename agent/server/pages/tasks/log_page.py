"""The whole log of a step: its end first, the rest in pages, searched, and as a file."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from agent.core.escape import harmless
from agent.core.state_machine import TASK_ENDED
from agent.server.context import context_of
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import PageRequest
from agent.server.pages.framework.rendering import HEADERS
from agent.server.pages.framework.renderings import by_task
from agent.server.pages.framework.templates import short_id
from agent.store.db.database import Connection
from agent.store.db.json_values import decode
from agent.store.read import overview, step_views
from agent.tasks.errors import NotFoundError
from agent.tasks.read_models import task_documents

Document = dict[str, Any]

pages = PageRegistry("log")

LIVE_SECONDS: Final = 3
"""How often the log of a step that may run is read again: it grows without events."""
SHOWN: Final = 30_000
"""Characters of a log that a page with other contents shows."""
_PAGE: Final = 200_000
_PAGE_PIECES: Final = 2_000
_FOUND_PIECES: Final = 200
_FILE_PIECES: Final = 5_000
_LAST: Final = 2**63 - 1


@pages.page("/tasks/{task_id}/steps/{name}/log", "log.html", version=by_task)
def log_page(connection: Connection, request: PageRequest) -> Document:
    """Return the end of a step's log, the part before a place, or the lines that have a text."""
    task_id, name = request.params["task_id"], request.params["name"]
    step = _step(connection, task_id, name)
    attempt = _number(request.query.get("attempt"))
    before = _number(request.query.get("before"))
    search = request.query.get("search", "").strip()
    most = _FOUND_PIECES if search else _PAGE_PIECES
    pieces = task_documents.step_logs(
        connection, task_id, name, attempt, 0, most + 1, before or _LAST, search
    )
    shown = end_of(pieces[-most:], _PAGE, is_whole=True)
    has_more = len(shown) < len(pieces)
    return {
        "task": task_id,
        "step": name,
        "error": decode(step["error"]) if step["status"] == "failed" else None,
        "attempts": step["attempt"],
        "attempt": attempt,
        "search": search,
        "pieces": [_lines_with(search, piece) for piece in shown] if search else shown,
        "older": request.url(before=str(shown[0]["id"])) if has_more else None,
        "newest": request.url(before=None) if before else None,
        "live_tasks": [task_id],
        "every_seconds": None if before else live_seconds(connection, task_id, step),
    }


@pages.stream("/tasks/{task_id}/steps/{name}/log.txt")
async def log_file(request: Request) -> Response:
    """Return the log as a file."""
    context, view = context_of(request), request.path_params
    task_id, name = view["task_id"], view["name"]
    attempt = _number(request.query_params.get("attempt"))
    await context.read_pool.read(lambda connection: _step(connection, task_id, name))

    async def texts() -> AsyncIterator[str]:
        after = 0
        while True:
            pieces = await context.read_pool.read(
                lambda connection: task_documents.step_logs(
                    connection,
                    task_id,
                    name,
                    attempt,
                    after,  # noqa: B023 - it is awaited in this round
                    _FILE_PIECES,
                )
            )
            yield "".join(_whole_lines(harmless(piece["text"])) for piece in pieces)
            if len(pieces) < _FILE_PIECES:
                return
            after = pieces[-1]["id"]

    safe = "".join(sign if sign.isalnum() and sign.isascii() else "-" for sign in name)
    disposition = f'attachment; filename="{short_id(task_id)}-{safe}.log"'
    return StreamingResponse(
        texts(),
        media_type="text/plain; charset=utf-8",
        headers={**HEADERS, "content-disposition": disposition},
    )


def end_of(pieces: Sequence[Document], most: int, *, is_whole: bool = False) -> list[Document]:
    """Return the end of a log in this many characters: the first piece is cut at a line.

    Of whole pieces there is at least one, however long it is.
    """
    kept = list[Document]()
    for piece in reversed(pieces):
        text = piece["text"]
        if len(text) > most:
            lines = text[-most:].partition("\n")[2] or ("" if kept else text[-most:])
            if is_whole and not kept:
                kept.append(piece)
            elif lines and not is_whole:
                kept.append({**piece, "text": lines})
            break
        most -= len(text)
        kept.append(piece)
    return kept[::-1]


def live_seconds(connection: Connection, task_id: str, step: Document) -> int | None:
    """Return how often the log of a step is read again; None while it cannot grow."""
    # The lines of an external worker, and of the items of a group, arrive while the step waits.
    has_others = step["kind"] == "worker" or step["parallel_count"] is not None
    may_grow = step["status"] == "running" or (step["status"] == "waiting" and has_others)
    version = overview.version(connection, task_id) if may_grow else None
    return LIVE_SECONDS if version is not None and version[1] not in TASK_ENDED else None


def _step(connection: Connection, task_id: str, name: str) -> Document:
    step = step_views.step_by_name(connection, task_id, name)
    if step is None:
        raise NotFoundError(f"there is no task {task_id} with a step called {name!r}")
    return step


def _number(text: str | None) -> int | None:
    """Return a number in an address; what is none counts as not given."""
    return int(text) if text and text.isdecimal() and len(text) < 19 else None


def _lines_with(search: str, piece: Document) -> Document:
    """Return a piece with the lines that were searched for; a text of several lines is not split."""
    wanted = search.casefold()
    lines = [line for line in piece["text"].splitlines() if wanted in line.casefold()]
    return {**piece, "text": "\n".join(lines) or piece["text"]}


def _whole_lines(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"
