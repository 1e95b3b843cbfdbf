"""Changes of one message in a mailbox over IMAP: its flags, its labels and its folder. All of it blocks.

A message is known by its `Message-ID`: a UID means another message once the server has numbered the folder
again. Every change may be made twice: what is done already stays as it is.
"""

import imaplib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from agent.steps.mail.imap_connection import (
    ImapConnection,
    MailboxError,
    require_imap_tools,
    server_text,
)
from agent.steps.mail.sent_folder import find_message

_GMAIL: Final = "X-GM-EXT-1"
_keyword = re.compile(r"[A-Za-z0-9_$.-]{1,100}")


class ChangeRefusedError(MailboxError):
    """The server refused a change, or has no such message: nothing is under way."""


@dataclass(frozen=True, slots=True)
class Changes:
    """What is done with a message, in this order."""

    flags: Sequence[str]
    """As IMAP writes them, as in `\\Seen`."""
    removed_flags: Sequence[str]
    labels: Sequence[str]
    removed_labels: Sequence[str]
    move: str | None
    """The folder that it goes to."""


def change(
    connection: ImapConnection,
    folder: str,
    message_id: str,
    changes: Changes,
    begin: Callable[[], None],
) -> str:
    """Change a message; return the folder that it is in. `begin` is called before the first change."""
    connection.open_folder(folder, readonly=False)
    uid = find_message(connection, message_id)
    target = changes.move or folder
    if uid is None:
        if target != folder and _is_in(connection, target, message_id):
            return target
        raise ChangeRefusedError(f"{connection.host} has no message {message_id} in {folder!r}")
    labels = (*changes.labels, *changes.removed_labels)
    is_gmail = bool(labels) and connection.has_capability(_GMAIL)
    if not is_gmail and (bad := [label for label in labels if not _keyword.fullmatch(label)]):
        raise ChangeRefusedError(
            f"{connection.host} takes labels of letters, digits and _ $ . - only, not {bad[0]!r}"
        )
    begin()
    for sign, flags, names in (
        ("+", changes.flags, changes.labels),
        ("-", changes.removed_flags, changes.removed_labels),
    ):
        if names and is_gmail:
            encode = require_imap_tools().utils.encode_folder
            _store(connection, uid, f"{sign}X-GM-LABELS", b" ".join(map(encode, names)))
        elif names:
            flags = (*flags, *names)
        if flags:
            _store(connection, uid, f"{sign}FLAGS", " ".join(flags).encode("ascii"))
    if changes.labels and not is_gmail:
        _check_labels(connection, uid, changes.labels)
    if target != folder:
        _move(connection, uid, folder, target, message_id)
    return target


def _store(connection: ImapConnection, uid: str, what: str, values: bytes) -> None:
    _command(connection, "STORE", uid, what, b"(" + values + b")")


def _check_labels(connection: ImapConnection, uid: str, labels: Sequence[str]) -> None:
    """Raise unless the labels stay: a server may accept keywords that it does not keep."""
    lines = _command(connection, "FETCH", uid, "(FLAGS)")
    text = b" ".join(line for line in lines if isinstance(line, bytes)).decode("ascii", "replace")
    found = re.search(r"FLAGS \(([^()]*)\)", text)
    kept = set() if found is None else set(found[1].lower().split())
    if missing := [label for label in labels if label.lower() not in kept]:
        raise ChangeRefusedError(f"{connection.host} keeps no labels of its users: {missing[0]}")


def _move(connection: ImapConnection, uid: str, folder: str, target: str, message_id: str) -> None:
    name = require_imap_tools().utils.encode_folder(target)
    if connection.has_capability("MOVE"):
        _command(connection, "MOVE", uid, name)
        return
    # An attempt that ended in between has left a copy.
    is_copied = _is_in(connection, target, message_id)
    connection.open_folder(folder, readonly=False)
    if not is_copied:
        _command(connection, "COPY", uid, name)
    _store(connection, uid, "+FLAGS", b"\\Deleted")
    if connection.has_capability("UIDPLUS"):
        # Without it, every other message that is marked as deleted would go as well.
        _command(connection, "EXPUNGE", uid)


def _is_in(connection: ImapConnection, folder: str, message_id: str) -> bool:
    connection.open_folder(folder)
    return find_message(connection, message_id) is not None


def _command(connection: ImapConnection, name: str, *arguments: Any) -> list[Any]:
    client: imaplib.IMAP4 = connection.mailbox.client
    status, lines = client.uid(name, *arguments)
    if status != "OK":
        text = server_text(imaplib.IMAP4.error(lines))
        raise ChangeRefusedError(f"{connection.host} refused {name}: {text}")
    return lines
