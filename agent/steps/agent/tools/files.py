"""Files below one directory, as tools: nothing leads out of it, symbolic links least of all.

Paths are walked one name at a time from the directory's own descriptor without following links, so
that no change of the tree in between can lead elsewhere.
"""

import asyncio
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from agent.core.ids import new_id
from agent.steps.agent.tool import AgentTool, CoroutineRun, ToolRefusedError, ToolRun, text_schema
from agent.steps.attempt.context import StepContext
from agent.steps.spec.agent_config import FilesTool
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json

_MAX_BYTES: Final = 1_048_576
_MAX_ENTRIES: Final = 1000
_PATH: Final = "a path below the directory, such as notes/today.txt"


def offers(name: str, config: FilesTool) -> list[AgentTool]:
    """Return the tools that read, list and perhaps write."""
    made = [
        _offer(f"{name}_read", "Read a text file.", config, text_schema(path=_PATH), _read),
        _offer(
            f"{name}_list",
            "List a directory; directories end with a slash. The path . is the top.",
            config,
            text_schema(path=_PATH),
            _list,
        ),
    ]
    if config.write:
        schema = text_schema(path=_PATH, text="the whole new content")
        text = "Write a text file, in place of one that is there."
        made.append(_offer(f"{name}_write", text, config, schema, _write, is_effect=True))
    return made


def _offer(
    name: str,
    description: str,
    config: FilesTool,
    schema: dict[str, Json],
    work: Callable[[int, list[str], dict[str, Json]], Json],
    *,
    is_effect: bool = False,
) -> AgentTool:
    def start(arguments: dict[str, Json], context: StepContext) -> ToolRun:
        parts = parts_of(arguments["path"])
        root = _root(config.directory, context.claimed.task.source_path)

        def act() -> Json:
            with _errors(arguments["path"]), _opened(root) as top:
                return work(top, parts, arguments)

        return CoroutineRun(lambda _: asyncio.to_thread(act))

    # To write the same again changes nothing: an unknown write is simply repeated.
    return AgentTool(name, description, schema, lambda _: is_effect, start, on_unknown="retry")


def parts_of(path: str) -> list[str]:
    """Return the names of a path; refuse one that could lead out of its directory."""
    if path.startswith("/") or "\0" in path or "\\" in path:
        raise ToolRefusedError(f"{path!r} is not a path below the directory")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolRefusedError(f"{path!r} leads out of the directory: no .. is allowed")
    return parts


def _root(directory: str, source_path: str | None) -> Path:
    """Return the directory; a relative one is beside the workflow file."""
    base = Path(source_path).parent if source_path is not None else Path.cwd()
    return base / Path(directory).expanduser()


@contextmanager
def _errors(path: str) -> Iterator[None]:
    """Tell what the system says in words for the model, without the directory's own place."""
    try:
        yield
    except OSError as problem:
        reason = problem.strerror or type(problem).__name__
        if isinstance(problem, NotADirectoryError) or problem.errno == 40:
            reason = "it is no directory, or a symbolic link, which is not followed"
        raise _failure(path, reason) from None


@contextmanager
def _opened(path: str | Path, flags: int = os.O_DIRECTORY, at: int | None = None) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | flags, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _parent(top: int, parts: list[str], *, is_made: bool = False) -> Iterator[int]:
    """Open the directory that holds the last name of a path."""
    if not parts:
        yield top
        return
    if is_made:
        with suppress(FileExistsError):
            os.mkdir(parts[0], dir_fd=top)
    flags = os.O_DIRECTORY | os.O_NOFOLLOW
    with _opened(parts[0], flags, top) as inner, _parent(inner, parts[1:], is_made=is_made) as last:
        yield last


def _read(top: int, parts: list[str], arguments: dict[str, Json]) -> Json:
    if not parts:
        raise _failure(".", "it is a directory")
    with _parent(top, parts[:-1]) as parent, _opened(parts[-1], os.O_NOFOLLOW, parent) as file:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise _failure(arguments["path"], "it is no plain file")
        if found.st_size > _MAX_BYTES:
            raise _failure(arguments["path"], f"it is larger than {_MAX_BYTES} bytes")
        return os.read(file, _MAX_BYTES).decode("utf-8", "replace")


def _list(top: int, parts: list[str], arguments: dict[str, Json]) -> Json:
    with _parent(top, parts) as directory, os.scandir(directory) as entries:
        names = sorted(
            f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
            for entry in entries
        )
    shown = names[:_MAX_ENTRIES]
    if len(names) > len(shown):
        shown.append(f"[and {len(names) - len(shown)} more]")
    return "\n".join(shown) or "[empty]"


def _write(top: int, parts: list[str], arguments: dict[str, Json]) -> Json:
    content = arguments["text"].encode("utf-8", "replace")
    if not parts:
        raise _failure(".", "it is a directory")
    if len(content) > _MAX_BYTES:
        raise _failure(arguments["path"], f"the text is larger than {_MAX_BYTES} bytes")
    with _parent(top, parts[:-1], is_made=True) as parent:
        with suppress(FileNotFoundError):
            mode = os.stat(parts[-1], dir_fd=parent, follow_symlinks=False).st_mode
            if not stat.S_ISREG(mode):
                raise _failure(arguments["path"], "something that is no plain file is there")
        aside = f".{new_id()}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with os.fdopen(os.open(aside, flags, 0o666, dir_fd=parent), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            os.replace(aside, parts[-1], src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(OSError):
                os.unlink(aside, dir_fd=parent)
            raise
    return f"{len(content)} bytes were written"


def _failure(path: str, reason: str) -> DefiniteFailure:
    return DefiniteFailure(f"{path}: {reason}", code="file", may_retry=False)
