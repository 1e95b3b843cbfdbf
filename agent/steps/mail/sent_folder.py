"""The folder of sent mail, over IMAP: whether it has a message, and a copy for it. All of it blocks."""

import imaplib
import re
from contextlib import suppress
from typing import Any, Final

from agent.steps.mail.imap_connection import ImapConnection, MailboxError, require_imap_tools

_SENT_FLAG: Final = "\\SENT"
_COMMON_NAMES: Final = ("sent", "sent items", "sent mail", "sent messages", "inbox.sent")
_MOST_CHECKED: Final = 100


def has_message(connection: ImapConnection, folder: str, message_id: str) -> bool:
    """Whether the folder has a message with this id; only inside a session."""
    connection.open_folder(_folder(connection, folder))
    return find_message(connection, message_id) is not None


def find_message(connection: ImapConnection, message_id: str) -> str | None:
    """Return the UID of the newest message of the open folder with this id; None without one."""
    client = connection.mailbox.client
    # Anyone may have chosen the id: it must not end the quotation.
    quoted = require_imap_tools().utils.quote(message_id)
    status, lines = client.uid("SEARCH", "HEADER", "Message-ID", quoted)
    if status != "OK":
        raise MailboxError(f"{connection.host} cannot search by Message-ID")
    uids = b" ".join(line for line in lines if isinstance(line, bytes)).split()
    # Some servers find parts of words, or ignore unknown criteria: the header decides.
    checked = (uid.decode("ascii") for uid in reversed(uids[-_MOST_CHECKED:]))
    return next((uid for uid in checked if _id_of(client, uid) == message_id), None)


def append(connection: ImapConnection, folder: str, message: bytes, message_id: str) -> bool:
    """Put a copy into the folder, unless it is there already; return whether it was added."""
    name = _folder(connection, folder)
    if has_message(connection, name, message_id):
        return False
    connection.mailbox.append(message, name, flag_set=["\\Seen"])
    return True


def _id_of(client: imaplib.IMAP4, uid: str) -> str | None:
    _, lines = client.uid("FETCH", uid, "(BODY.PEEK[HEADER.FIELDS (MESSAGE-ID)])")
    for line in lines:
        text = line[1] if isinstance(line, tuple) else line
        match = re.search(rb"message-id:\s*(<[^>]*>)", text or b"", re.IGNORECASE)
        if match is not None:
            return match[1].decode("ascii", "replace")
    return None


def _folder(connection: ImapConnection, folder: str) -> str:
    """Return the folder's name: as configured, or the one that the server marks, or a usual one."""
    if folder:
        return folder
    folders: list[Any] = []
    with suppress(imaplib.IMAP4.error):
        folders = list(connection.mailbox.folder.list())
    for listed in folders:
        if _SENT_FLAG in {flag.upper() for flag in listed.flags}:
            return str(listed.name)
    for listed in folders:
        if listed.name.lower() in _COMMON_NAMES:
            return str(listed.name)
    raise MailboxError(
        f"{connection.host} does not say which folder has the sent mail: set `folder` in the account's"
        f" imap section; there are {connection.folder_names()}"
    )
