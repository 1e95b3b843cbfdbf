"""Reads what a step attaches: files below the allowed directories, and values of the task.

Shared by the kinds that send something to people. `attach_directories` and `attach_bytes` of `[steps]`
are the limits.
"""

import base64
import binascii
import json
import mimetypes
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from agent.core.confined_files import ConfinementError, names_of, opened, read_file, reason_of
from agent.steps.attempt.services import Limits
from agent.steps.spec.attachment_config import AttachmentConfig
from agent.steps.types.attachment import Attachment
from agent.steps.types.errors import DefiniteFailure

_BINARY: Final = "application/octet-stream"


def read_attachments(configs: Sequence[AttachmentConfig], limits: Limits) -> list[Attachment]:
    """Return the attachments; blocks while files are read.

    Raise `DefiniteFailure` for a file that is missing or not allowed, and for more than the limit.
    """
    left_bytes = limits.attach_bytes
    found: list[Attachment] = []
    for config in configs:
        attachment = _read(config, limits, left_bytes)
        left_bytes -= len(attachment.content)
        if left_bytes < 0:
            raise _refused(
                "attachments_too_large",
                f"the attachments are larger than {limits.attach_bytes:,} bytes, which"
                " `attach_bytes` in [steps] allows",
            )
        found.append(attachment)
    return found


def _read(config: AttachmentConfig, limits: Limits, left_bytes: int) -> Attachment:
    if config.file is None:
        assert config.name is not None
        content, media_type = _value(config)
        return Attachment(config.name, config.type or _type_of(config.name, media_type), content)
    name = config.name or PurePosixPath(config.file).name
    content = _file(config.file, limits, left_bytes)
    return Attachment(name, config.type or _type_of(name, _BINARY), content)


def _value(config: AttachmentConfig) -> tuple[bytes, str]:
    """Return the content of a value, and its type where its name says none."""
    value = config.value
    if config.encoding == "base64":
        try:
            return base64.b64decode(value, validate=True), _BINARY
        except (binascii.Error, ValueError, TypeError):
            raise _refused("bad_attachment", f"the value of {config.name} is not base64") from None
    if isinstance(value, str):
        return value.encode("utf-8", "replace"), "text/plain"
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return text.encode("utf-8", "replace"), "application/json"


def _type_of(name: str, default: str) -> str:
    guessed, encoding = mimetypes.guess_type(name)
    return default if guessed is None or encoding is not None else guessed


def _file(path: str, limits: Limits, left_bytes: int) -> bytes:
    if not limits.attach_directories:
        raise _refused(
            "attachment_refused",
            f"{path} cannot be attached: `attach_directories` in [steps] of the configuration"
            " names no directory",
        )
    problem = "there is no such file"
    for directory in limits.attach_directories:
        relative = _below(path, directory)
        if relative is None:
            problem = "it is not below a directory of `attach_directories` in [steps]"
            continue
        try:
            with opened(Path(directory)) as top:
                return read_file(top, names_of(relative), left_bytes)
        except ConfinementError as error:
            raise _refused("attachment_refused", str(error)) from None
        except FileNotFoundError:
            problem = "there is no such file"
        except OSError as error:
            raise _refused("attachment_refused", f"{path}: {reason_of(error)}") from None
    shown = ", ".join(limits.attach_directories)
    raise _refused("attachment_missing", f"{path} cannot be attached: {problem} ({shown})")


def _below(path: str, directory: str) -> str | None:
    """Return a path relative to an allowed directory; None for an absolute one elsewhere."""
    if not path.startswith("/"):
        return path
    return path[len(directory) + 1 :] if path.startswith(f"{directory}/") else None


def _refused(code: str, message: str) -> DefiniteFailure:
    return DefiniteFailure(message, code=code, kind="input", may_retry=False)
