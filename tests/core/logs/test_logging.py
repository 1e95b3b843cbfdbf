"""The log: one form for our lines and those of libraries, and no secret in any of them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from agent.core.logs import logging as log
from agent.core.redaction import everywhere


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Give the process its own logging back."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def _lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_json_lines_carry_what_was_bound() -> None:
    """Each line is one JSON document with its level, time, part and values."""
    stream = io.StringIO()
    log.configure("json", "info", stream)
    structlog.get_logger("engine").info("step claimed", step="fetch", attempt=2)
    structlog.get_logger("engine").debug("not at this level")
    (line,) = _lines(stream)
    assert line["event"] == "step claimed"
    assert line["level"] == "info"
    assert line["logger"] == "engine"
    assert (line["step"], line["attempt"]) == ("fetch", 2)
    assert "timestamp" in line


def test_libraries_speak_through_the_same_form() -> None:
    """What a library logs by the standard module comes out as the same kind of line."""
    stream = io.StringIO()
    log.configure("json", "info", stream)
    logging.getLogger("some.library").warning("slow %s", "thing")
    for name in ("httpx", "httpx2"):
        logging.getLogger(name).info("a request")
    (line,) = _lines(stream)
    assert line["event"] == "slow thing"
    assert line["level"] == "warning"


def test_auto_is_json_where_there_is_no_terminal() -> None:
    """A file or a pipe gets JSON; the console form is plain text."""
    stream = io.StringIO()
    log.configure("auto", "info", stream)
    structlog.get_logger("engine").info("hello")
    assert _lines(stream)[0]["event"] == "hello"
    plain = io.StringIO()
    log.configure("console", "info", plain)
    structlog.get_logger("engine").info("hello", task="x")
    assert "hello" in plain.getvalue()
    assert "task=x" in plain.getvalue()
    assert "\x1b[" not in plain.getvalue()


@pytest.mark.parametrize("form", ["json", "console"])
def test_secrets_are_hidden_wherever_they_turn_up(form: str) -> None:
    """Names that speak of secrets, known values, and passwords in addresses are hidden."""
    stream = io.StringIO()
    log.configure(form, "info", stream)
    everywhere.hide("hunter2-value")
    logger = structlog.get_logger("engine")
    logger.info(
        "calling with hunter2-value",
        api_token="abc-one",
        headers={"Authorization": "abc-two", "accept": "json"},
        url="postgresql://me:abc-three@host/db",
        argv=["pay", "--key=hunter2-value"],
        tokens_in=17,
    )
    try:
        raise ValueError("it was hunter2-value")
    except ValueError:
        logger.exception("it failed")
    logging.getLogger("library").error("sent hunter2-value")
    text = stream.getvalue()
    for secret in ("hunter2-value", "abc-one", "abc-two", "abc-three"):
        assert secret not in text
    assert "17" in text
    assert "postgresql://me:[hidden]@host/db" in text


def test_redaction_keeps_what_is_no_secret() -> None:
    """Plain values pass unchanged, containers keep their shape, short values are not hunted."""
    everywhere.hide("1")
    value = {"a": [1, 2.5, None, True, "text 1"], "b": {"c": "d"}}
    assert log.redact(value) == value
    assert log.redact({"password": None}) == {"password": None}
    assert log.redact({"private_key": {"pem": "x"}}) == {"private_key": "[hidden]"}


@pytest.mark.parametrize("form", ["json", "console"])
def test_texts_of_others_do_not_steer_the_terminal(form: str) -> None:
    """Neither control characters nor marks of direction reach it; JSON reads back as it was."""
    stream = io.StringIO()
    log.configure(form, "info", stream)
    given = "a\x1b]0;x\x07\x9b\u202eb"
    structlog.get_logger("engine").warning("failed", error=given, data={"error": given})
    text = stream.getvalue()
    assert text.strip().isprintable()
    if form == "json":
        (line,) = _lines(stream)
        assert line["error"] == given
