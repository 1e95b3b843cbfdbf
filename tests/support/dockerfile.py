"""What the Dockerfile says: its instructions, and the files that it copies."""

import re
import shlex

from tests.support.cli import ROOT


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments, continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    words = [line.strip().partition(" ") for line in lines if line.strip()]
    return [(name, rest.strip()) for name, _, rest in words]


def arguments(name: str) -> list[str]:
    """Return the arguments of every instruction of a name."""
    return [rest for each, rest in instructions() if each == name]


def copied() -> list[str]:
    """Return what is copied from the project."""
    found = [shlex.split(rest) for rest in arguments("COPY")]
    return [name for words in found if not words[0].startswith("--from") for name in words[:-1]]
