"""The messages between an agent and a process of its pool: JSON, each with its length before it."""

import json
import socket
from asyncio import IncompleteReadError, StreamReader
from typing import Any, Final

from agent.steps.types.attempt_input import RevokedError
from agent.steps.types.errors import DefiniteFailure, EndAttempt
from agent.store.db.json_values import NotPlainJsonError

Message = dict[str, Any]

_LENGTH_BYTES: Final = 4


def encode(message: Message) -> bytes:
    """Return a message as it is sent."""
    data = json.dumps(message).encode("ascii")
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


async def read(reader: StreamReader) -> bytes | None:
    """Return the next message undecoded; None when the other side has ended."""
    try:
        length = int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big")
        return await reader.readexactly(length)
    except (IncompleteReadError, ConnectionError):
        return None


def read_blocking(connection: socket.socket) -> Message | None:
    """Return the next message; None when the other side has ended."""
    header = _receive(connection, _LENGTH_BYTES)
    data = None if header is None else _receive(connection, int.from_bytes(header, "big"))
    return None if data is None else json.loads(data)


def _receive(connection: socket.socket, count: int) -> bytes | None:
    content = bytearray()
    while len(content) < count:
        try:
            chunk = connection.recv(min(count - len(content), 1 << 20))
        except ConnectionError:
            return None
        if not chunk:
            return None
        content += chunk
    return bytes(content)


def describe(exception: BaseException) -> Message | None:
    """Return an exception that both sides know; None for any other."""
    if isinstance(exception, DefiniteFailure):
        error = exception.error
        return {
            "type": "failure",
            "message": error.message,
            "code": error.code,
            "kind": error.kind,
            "may_retry": exception.may_retry,
            "delay_seconds": exception.delay_seconds,
        }
    if isinstance(exception, NotPlainJsonError):
        return {"type": "not_plain", "path": exception.path, "message": exception.problem}
    if isinstance(exception, EndAttempt):
        return {"type": "end"}
    if isinstance(exception, RevokedError):
        return {"type": "revoked", "message": str(exception)}
    return None


def known_problem(described: Message) -> Exception | None:
    """Return a described exception; None for one that is not among the known ones."""
    match described["type"]:
        case "failure":
            return DefiniteFailure(
                described["message"],
                code=described["code"],
                kind=described["kind"],
                may_retry=described["may_retry"],
                delay_seconds=described["delay_seconds"],
            )
        case "not_plain":
            return NotPlainJsonError(described["path"], described["message"])
        case "revoked":
            return RevokedError(described["message"])
    return None
