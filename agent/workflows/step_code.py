"""The code that a workflow's steps run, as hashes of its files.

Of a `python` step this is the module beside the workflow's file; of a `shell` step, the files among the words
of its command. A version of a workflow records them. Imports of such a file are not followed.
"""

import json
import stat
from functools import lru_cache
from pathlib import Path
from typing import Final

from agent.core.ids import content_hash
from agent.workflows.graph import Graph, Step
from agent.workflows.templates.templates import is_template

MAX_BYTES: Final = 4_194_304
"""A larger file is taken for data: it is not read."""


def code_hashes(graph: Graph, path: Path) -> dict[str, str]:
    """Return the hash of each step's code, by step; steps without files of their own have none."""
    hashes: dict[str, str] = {}
    for step in graph.steps:
        digests = [digest for file in _files(step, path) if (digest := _hash(file)) is not None]
        if digests:
            hashes[step.name] = digests[0] if len(digests) == 1 else content_hash(" ".join(digests))
    return hashes


def changed_code(recorded: str | None, graph: Graph, path: str | None) -> list[str]:
    """Return the steps whose code is not what it was when hashes were recorded.

    None where nothing was recorded, or where the workflow's file has no directory any more.
    """
    if not recorded or path is None or not Path(path).parent.is_dir():
        return []
    before, now = json.loads(recorded), code_hashes(graph, Path(path))
    return [step.name for step in graph.steps if before.get(step.name) != now.get(step.name)]


def _files(step: Step, path: Path) -> list[Path]:
    if step.kind == "python":
        return _module(step.config.get("call"), path.parent)
    if step.kind == "shell":
        return _command_files(step.config, path.parent)
    return []


def _module(call: object, directory: Path) -> list[Path]:
    if not isinstance(call, str) or is_template(call):
        return []
    base = directory.joinpath(*call.partition(":")[0].split("."))
    for file in (base.with_name(base.name + ".py"), base / "__init__.py"):
        if _is_regular(file):
            return [file]
    return []


def _command_files(config: dict[str, object], directory: Path) -> list[Path]:
    """Return the files that the words of a command name.

    A relative path is relative to the directory that the command runs in: the step's own, or the
    configuration's, which is the workflow directory's parent by default.
    """
    argv, cwd = config.get("argv"), config.get("cwd")
    words = [word for word in argv if isinstance(word, str)] if isinstance(argv, list) else []
    places = [Path(cwd)] if isinstance(cwd, str) and not is_template(cwd) else []
    places += [Path.cwd(), directory.parent, directory]
    files: list[Path] = []
    for word in words:
        if ("/" not in word and "." not in word) or is_template(word) or word.startswith("-"):
            continue
        file = next((place / word for place in places if _is_regular(place / word)), None)
        files += [] if file is None else [file]
    return files


def _is_regular(file: Path) -> bool:
    return _stamp(file) is not None


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        status = file.stat()
    except (OSError, ValueError):
        return None
    # A device may have no end.
    if not stat.S_ISREG(status.st_mode):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def _hash(file: Path) -> str | None:
    stamp = _stamp(file)
    if stamp is None or stamp[1] > MAX_BYTES:
        return None
    try:
        return _content_hash(file, stamp)
    except OSError:
        return None


@lru_cache(maxsize=1024)
def _content_hash(file: Path, _stamp: tuple[int, int, int]) -> str:
    """Return the hash of a file; read again when its stamp differs."""
    return content_hash(file.read_bytes())
