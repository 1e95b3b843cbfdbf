"""The daemon's log: for people on a console, as JSON for machines.

Modules log through `structlog.get_logger(__name__)`; this module decides where and how their lines are
written.

Secrets never reach a line: values under keys that name secrets are hidden, passwords inside URLs, and
every value that was read by reference, wherever it occurs.
"""

import logging
import re
import shutil
import sys
from collections.abc import Mapping, MutableMapping
from typing import Any, TextIO

from agent.core.escape import harmless, harmless_json
from agent.core.logs.console_log import ConsoleRenderer
from agent.core.redaction import everywhere

HIDDEN = "[hidden]"
# Not "tokens": those are counts of what a model read and wrote.
_SECRET_NAME = re.compile(
    r"(^|[_-])((password|passwd|secret|cookie|credential)s?"
    r"|token|api_?keys?|private_?keys?|authorization)($|[_-])",
    re.IGNORECASE,
)
# The scheme is bounded: otherwise a long text of letters takes quadratic time.
_ADDRESS_PASSWORD = re.compile(
    r"(?P<start>\b[a-z][a-z0-9+.-]{0,40}://[^\s:/@]*:)[^\s@/]+(?=@)", re.IGNORECASE
)


def redact_text(text: str) -> str:
    """Return a text without passwords in addresses and without secrets read by reference."""
    text = everywhere.redact(text, HIDDEN)
    return _ADDRESS_PASSWORD.sub(rf"\g<start>{HIDDEN}", text)


def redact(value: Any, name: str = "") -> Any:
    """Return a value, and the values inside it, without secrets."""
    if name and value is not None and _SECRET_NAME.search(name):
        return HIDDEN
    match value:
        case str():
            return redact_text(value)
        case Mapping():
            return {key: redact(item, str(key)) for key, item in value.items()}
        case list() | tuple() | set():
            return [redact(item) for item in value]
        case None | bool() | int() | float():
            return value
        case _:
            return redact_text(str(value))


def configure(log_format: str = "auto", level: str = "info", stream: TextIO | None = None) -> None:
    """Send the agent's lines and those of libraries to a stream (standard error), in one format."""
    import structlog

    stream = stream or sys.stderr
    is_console = log_format == "console" or (log_format == "auto" and stream.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                # As text before redaction: a secret in a traceback is a secret in the log.
                structlog.processors.format_exc_info,
                _redact_event,
                *([_show_safely] if is_console else []),
                _renderer(stream, is_console=is_console),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # They log every request and every connection.
    for noisy in ("httpx", "httpcore", "httpx2", "httpcore2", "asyncio", "alembic"):
        logging.getLogger(noisy).setLevel(max(logging.WARNING, root.level))
    # It logs every run of a job; a job's own failures are logged by the daemon.
    logging.getLogger("apscheduler").setLevel(max(logging.ERROR, root.level))


def _renderer(stream: TextIO, *, is_console: bool) -> Any:
    import structlog

    if is_console:
        columns = (lambda: shutil.get_terminal_size().columns) if stream.isatty() else None
        return ConsoleRenderer(has_colours=_wants_color(stream), columns=columns)
    return structlog.processors.JSONRenderer(serializer=_written)


def _written(event: Any, **_: Any) -> str:
    # Everything in it is plain by now: redaction has written the rest as text.
    return harmless_json(event)


def _wants_color(stream: TextIO) -> bool:
    import os

    return stream.isatty() and not os.environ.get("NO_COLOR")


def _redact_event(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    return {key: redact(value, key) for key, value in event.items()}


def _show_safely(
    _logger: Any, _method: str, event: MutableMapping[str, Any]
) -> MutableMapping[str, Any]:
    """Escape text from outside, so that it cannot control the terminal; other values are escaped already."""
    return {
        key: harmless(value) if isinstance(value, str) else value for key, value in event.items()
    }
