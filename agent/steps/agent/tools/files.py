"""Files below one directory, as tools: no path and no symbolic link leads out of it (`confined_files`)."""

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agent.core.files import confined_files
from agent.core.files.confined_files import (
    OutsideError,
    opened,
    opened_below,
    read_bytes,
    reason_of,
)
from agent.core.files.private_files import PRIVATE, PrivateFiles
from agent.core.ids import new_id
from agent.steps.agent.tool import (
    AgentTool,
    CoroutineRun,
    StartRun,
    ToolRefusedError,
    ToolRun,
    text_schema,
)
from agent.steps.attempt.context import StepContext
from agent.steps.spec.agent_config import FilesTool
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json

_MAX_BYTES: Final = 1_048_576
_MAX_ENTRIES: Final = 1000
_PATH: Final = "a path below the directory, such as notes/today.txt"


FileFunction = Callable[[int, list[str], dict[str, Json], PrivateFiles], Json]
"""Takes the directory's descriptor, the names of the path, the tool's arguments, and what stays closed."""


def make_tools(name: str, config: FilesTool) -> list[AgentTool]:
    """Return the tools that read and list, and the one that writes if it is allowed."""
    path_schema = text_schema(path=_PATH)
    list_text = "List a directory; directories end with a slash. The path . is the top."
    # Writing the same again changes nothing: an unknown write is repeated.
    tools = [
        AgentTool(
            f"{name}_read", "Read a text file.", path_schema, _no, _start(config, _read), "retry"
        ),
        AgentTool(f"{name}_list", list_text, path_schema, _no, _start(config, _list), "retry"),
    ]
    if config.write:
        schema = text_schema(path=_PATH, text="the whole new content")
        text = "Write a text file, in place of one that is there."
        start = _start(config, _write)
        tools.append(AgentTool(f"{name}_write", text, schema, _yes, start, "retry"))
    return tools


def _no(_: dict[str, Json]) -> bool:
    return False


def _yes(_: dict[str, Json]) -> bool:
    return True


def _start(config: FilesTool, function: FileFunction) -> StartRun:
    def start(arguments: dict[str, Json], context: StepContext) -> ToolRun:
        parts = parts_of(arguments["path"])
        root = _root(config.directory, context.attempt_input.task.source_path)
        paths = context.services.limits.private_files

        def act() -> Json:
            with _errors(arguments["path"]), opened(root) as top:
                return function(top, parts, arguments, PrivateFiles(paths))

        return CoroutineRun(lambda _: asyncio.to_thread(act))

    return start


def parts_of(path: str) -> list[str]:
    """Return the names of a path; refuse one that could lead out of its directory."""
    try:
        return confined_files.parts_of(path)
    except OutsideError as error:
        raise ToolRefusedError(str(error)) from None


def _root(directory: str, source_path: str | None) -> Path:
    """Return the directory; a relative one is beside the workflow file."""
    base = Path(source_path).parent if source_path is not None else Path.cwd()
    return base / Path(directory).expanduser()


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Turn errors of the system into words for the model, without the directory's own path."""
    try:
        yield
    except OSError as error:
        raise _failure(path, reason_of(error)) from None


def _read(top: int, parts: list[str], arguments: dict[str, Json], private: PrivateFiles) -> Json:
    if not parts:
        raise _failure(".", "it is a directory")
    with opened_below(top, parts[:-1]) as parent:
        _check_private(private, parent, parts[-1], arguments["path"])
        return read_bytes(parent, parts[-1:], _MAX_BYTES).decode("utf-8", "replace")


def _list(top: int, parts: list[str], _: dict[str, Json], __: PrivateFiles) -> Json:
    with opened_below(top, parts) as directory, os.scandir(directory) as entries:
        names = sorted(
            f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
            for entry in entries
        )
    shown = names[:_MAX_ENTRIES]
    if len(names) > len(shown):
        shown.append(f"[and {len(names) - len(shown)} more]")
    return "\n".join(shown) or "[empty]"


def _write(top: int, parts: list[str], arguments: dict[str, Json], private: PrivateFiles) -> Json:
    content = arguments["text"].encode("utf-8", "replace")
    if not parts:
        raise _failure(".", "it is a directory")
    if len(content) > _MAX_BYTES:
        raise _failure(arguments["path"], f"the text is larger than {_MAX_BYTES} bytes")
    with opened_below(top, parts[:-1], makes_directories=True) as parent:
        _check_private(private, parent, parts[-1], arguments["path"])
        with suppress(FileNotFoundError):
            mode = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode):
                raise _failure(arguments["path"], "something that is not a regular file is there")
        temporary = f".{new_id()}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(temporary, flags, 0o666, dir_fd=parent), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=parent)
            raise
    return f"{len(content)} bytes were written"


def _check_private(private: PrivateFiles, parent: int, name: str, path: str) -> None:
    if private.has(parent, name):
        raise _failure(path, PRIVATE)


def _failure(path: str, reason: str) -> DefiniteFailure:
    return DefiniteFailure(f"{path}: {reason}", code="file", may_retry=False)
