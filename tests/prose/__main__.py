"""Find words that make our text hard to read: `python -m tests.prose [FILE…]`, part of `make check`."""

import subprocess
import sys
from pathlib import Path

from tests.prose.words import find

ROOT = Path(__file__).parents[2]
KINDS = (".py", ".md", ".toml", ".yaml", ".html")
EXEMPT = ("tests/prose/", "agent/store/schema/migrations/versions/", "CHANGELOG.md")
"""The list itself; what is released is not rewritten."""


def _tracked() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return listed.stdout.splitlines()


def main() -> int:
    """Print each place with what to write instead; return the exit code."""
    findings = [
        finding
        for name in sys.argv[1:] or _tracked()
        if name.endswith(KINDS) and not name.startswith(EXEMPT) and (ROOT / name).is_file()
        for finding in find(name, (ROOT / name).read_text(encoding="utf-8"))
    ]
    for finding in findings:
        print(finding)
    if findings:
        print(f"{len(findings)} places to write in plain English (CONTRIBUTING.md, 'Prose')")
    return bool(findings)


if __name__ == "__main__":
    sys.exit(main())
