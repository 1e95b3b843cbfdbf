"""The code that a workflow's steps run, as hashes of its files.

Of a `python` step this is the module beside the workflow's file; of a `shell` step, its program, and the script
that the program runs where it is an interpreter. The key `code` of both lists further files. Other files that a
command names are data: they may change with each run. A version of a workflow records the hashes. Imports are not
followed.
"""

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from agent.core.ids import content_hash
from agent.workflows.graph import Graph, Step
from agent.workflows.templates.templates import is_template

MAX_BYTES: Final = 67_108_864
"""A larger file is not read."""

_SHELL: Final = re.compile("(ba|da|k|z|fi)?sh")
_INTERPRETER: Final = re.compile(
    "(python|pypy|perl|ruby|node|deno|bun|php|lua|Rscript|pwsh|uv|poetry|pdm|npx)[0-9.]*|"
    + _SHELL.pattern
)
"""A program that runs a script among its words."""
_WRAPPER: Final = re.compile(
    "env|nice|ionice|nohup|setsid|stdbuf|flock|time|timeout|sudo|doas|xvfb-run"
)
"""A program that runs the command among its words."""
_INLINE: Final = re.compile("-[a-z]*c|-m|-e|--eval")
"""An option after which the code is a text or a module, not a file."""


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
    changed = differing(json.loads(recorded), code_hashes(graph, Path(path)))
    return [step.name for step in graph.steps if step.name in changed]


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the steps whose code has another hash."""
    names = dict.fromkeys([*before, *after])
    return [name for name in names if before.get(name) != after.get(name)]


def _files(step: Step, path: Path) -> list[Path]:
    files: list[Path] = []
    if step.kind == "python":
        files = _module(step.config.get("call"), path.parent)
    elif step.kind == "shell":
        files = list(_program(step.config, path.parent))
    return files + [file for _, file in listed_code(step, path) if file is not None]


def listed_code(step: Step, path: Path) -> list[tuple[str, Path | None]]:
    """Return what the key `code` of a step lists, each with its file; None where there is none."""
    places = _places(step.config, path.parent)
    if step.kind == "python":
        places.reverse()
    return [(name, _find(name, places)) for name in _words(step.config.get("code"))]


def _module(call: object, directory: Path) -> list[Path]:
    if not isinstance(call, str) or is_template(call):
        return []
    base = directory.joinpath(*call.partition(":")[0].split("."))
    for file in (base.with_name(base.name + ".py"), base / "__init__.py"):
        if _is_regular(file):
            return [file]
    return []


def _program(config: dict[str, object], directory: Path) -> Iterator[Path]:
    """Yield the files of a command's program, and of the script that an interpreter runs.

    Behind a wrapper the program is the first file that can be executed: what `timeout 9 cat` reads is data.
    """
    program, *arguments = _words(config.get("argv")) or [""]
    places = _places(config, directory)
    if ("/" in program or "." in program) and (file := _find(program, places)) is not None:
        yield file
    runner = Path(program).name
    if not (_INTERPRETER.fullmatch(runner) or _WRAPPER.fullmatch(runner)):
        return
    for word in arguments:
        runs_script = _INTERPRETER.fullmatch(runner) is not None
        if is_template(word):
            if runs_script:
                return
            continue
        if _INLINE.fullmatch(word) and not (word == "-e" and _SHELL.fullmatch(runner)):
            return
        file = None if word.startswith("-") else _find(word, places)
        is_interpreter = _INTERPRETER.fullmatch(Path(word).name) is not None
        if is_interpreter:
            runner = Path(word).name
        if file is not None and (runs_script or is_interpreter or os.access(file, os.X_OK)):
            yield file
            if not is_interpreter:
                return


def _words(value: object) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list) else []


def _places(config: dict[str, object], directory: Path) -> list[Path]:
    """Return where a relative path of a command may be.

    It is relative to the directory that the command runs in: the step's own, or the configuration's, which
    is the workflow directory's parent by default.
    """
    cwd = config.get("cwd")
    places = [Path(cwd)] if isinstance(cwd, str) and not is_template(cwd) else []
    return [*places, Path.cwd(), directory.parent, directory]


def _find(word: str, places: Iterable[Path]) -> Path | None:
    if is_template(word):
        return None
    return next((place / word for place in places if _is_regular(place / word)), None)


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
