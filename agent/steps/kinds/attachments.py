"""The files of a message or a mail: values of the task, and files below the directories that are allowed."""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from agent.core.files.confined_files import (
    OutsideError,
    opened,
    opened_below,
    parts_of,
    read_bytes,
    reason_of,
)
from agent.core.files.private_files import PRIVATE, PrivateFiles
from agent.steps.spec.attachment_config import AttachmentConfig
from agent.steps.types.attachment import Attachment
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json

MAX_BYTES: Final = 20_971_520
"""The largest file; all together may have twice as much."""


def load(
    configs: Sequence[AttachmentConfig], allowed: Sequence[str], private: Iterable[str]
) -> list[Attachment]:
    """Read the files of a message or a mail; it blocks. `private` are the agent's own files."""
    closed = PrivateFiles(private) if any(config.path for config in configs) else None
    files = [_load(config, allowed, closed) for config in configs]
    if sum(len(file.content) for file in files) > 2 * MAX_BYTES:
        raise _refused(f"the attachments have more than {2 * MAX_BYTES:,} bytes together")
    return files


def summary(attachment: Attachment) -> dict[str, Json]:
    """Return the record of a file for the ledger: its name, its size and its hash."""
    digest = hashlib.sha256(attachment.content).hexdigest()
    return {"name": attachment.name, "bytes": len(attachment.content), "sha256": digest}


def _load(
    config: AttachmentConfig, allowed: Sequence[str], closed: PrivateFiles | None
) -> Attachment:
    if config.path is not None:
        assert closed is not None
        return _file(config.path, config.name, allowed, closed)
    assert config.name is not None
    if config.base64 is not None:
        try:
            content = base64.b64decode(config.base64, validate=True)
        except (binascii.Error, ValueError):
            raise _refused(f"{config.name}: its base64 cannot be decoded") from None
    elif isinstance(config.value, str):
        content = config.value.encode("utf-8", "replace")
    else:
        content = json.dumps(config.value, ensure_ascii=False, indent=1).encode("utf-8", "replace")
    if len(content) > MAX_BYTES:
        raise _refused(f"{config.name} is larger than {MAX_BYTES:,} bytes")
    return Attachment(config.name, content)


def _file(path: str, name: str | None, allowed: Sequence[str], closed: PrivateFiles) -> Attachment:
    """Read a file below an allowed directory, by an absolute path or by one relative to it."""
    if not allowed:
        raise _refused(
            f"{path}: no directory is allowed for attachments; list some as attach_from in [steps]"
        )
    reason = "there is no such file below a directory of attach_from in [steps]"
    for directory in allowed:
        try:
            parts = parts_of(_relative(path, directory))
            with opened(directory) as top:
                content = read_bytes(top, parts, MAX_BYTES)
                with opened_below(top, parts[:-1]) as parent:
                    if closed.has(parent, parts[-1]):
                        raise _refused(f"{path}: {PRIVATE}")
        except OutsideError:
            continue
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = reason_of(error)
            continue
        return Attachment(name or parts[-1], content, str(Path(directory, *parts)))
    raise _refused(f"{path}: {reason}")


def _relative(path: str, directory: str) -> str:
    prefix = directory.rstrip("/") + "/"
    return path.removeprefix(prefix) if path.startswith(prefix) else path


def _refused(message: str) -> DefiniteFailure:
    return DefiniteFailure(message, code="bad_attachment", kind="input", may_retry=False)
