"""The example workflows that come with the program, and the files that each of them needs."""

import re
from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import agent
from agent.cli.errors import CommandError

_DESCRIPTION: Final = re.compile(r"^description:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_CALLED: Final = re.compile(r"\b(?:call|function|render):[ \t]*[\"']?(\w+):\w+")
_QUEUE: Final = re.compile(r"\bqueue:[ \t]*(\w+)")
_CHILD: Final = re.compile(r"\bworkflow:[ \t]*(?:\{name:[ \t]*)?([\w-]+)")
_DIRECTORY: Final = re.compile(r"\b(?:directory|path):[ \t]*([\w-]+)[,}\s]")


def directory() -> Path:
    """Return where the examples are: in the installed package, or beside it in a clone."""
    package = Path(agent.__file__).parent
    installed = package / "examples"
    return installed if installed.is_dir() else package.parent / "examples"


def names() -> dict[str, Path]:
    """Return the example workflows by name."""
    files = sorted(
        path
        for part in ("*.yaml", "watch/*.yaml", "workers/*.yaml")
        for path in directory().glob(part)
    )
    return {path.stem: path for path in files}


def find(name: str) -> Path:
    """Return the file of an example; raise `CommandError` where there is none of this name."""
    known = names()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise CommandError(f"there is no example {name!r}; {hint}")
    return known[name]


def description(path: Path) -> str:
    """Return the first line of an example's description."""
    match = _DESCRIPTION.search(path.read_text(encoding="utf-8"))
    return "" if match is None else match[1].strip("\"'")


def files_of(path: Path) -> list[Path]:
    """Return the files of an example: itself, its functions, its child workflows, its directories."""
    files: list[Path] = []
    waiting = [path]
    while waiting:
        file = waiting.pop()
        if file not in files:
            files.append(file)
            waiting += _needed(file)
    return files


def _needed(file: Path) -> Iterator[Path]:
    if file.suffix != ".yaml":
        return
    text = file.read_text(encoding="utf-8")
    # The worker of a queue has its name.
    for pattern, suffix in ((_CALLED, ".py"), (_QUEUE, ".py"), (_CHILD, ".yaml")):
        for name in pattern.findall(text):
            if (file.parent / f"{name}{suffix}").is_file():
                yield file.parent / f"{name}{suffix}"
    for name in _DIRECTORY.findall(text):
        if (file.parent / name).is_dir():
            yield from sorted(path for path in (file.parent / name).rglob("*") if path.is_file())
