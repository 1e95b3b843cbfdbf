"""Builds the pages of the site that have their source elsewhere in the repository.

MkDocs calls `on_files` and `on_page_markdown`. The settings, the examples, the changelog and the page for
contributors are pages of the site; links to their files lead to these pages.
"""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

_ROOT = Path(__file__).parent.parent
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)\s]*)?\)")
_MOVED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "config.toml": "config.md",
}


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made from other files."""
    for source, content in _generated().items():
        files.append(File.generated(config, source, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to files of the repository to the pages that show them."""
    here = Path(page.file.src_uri).parent
    above = "../" * len(here.parts)
    return _LINK.sub(lambda link: f"]({_target(link[1], here, above)}{link[2] or ''})", markdown)


def _target(link: str, here: Path, above: str) -> str:
    path = _from_root(Path("docs") / here / link)
    if path in _MOVED:
        return above + _MOVED[path]
    if path == "examples" or path.startswith("examples/"):
        return f"{above}examples.md"
    return link


def _from_root(path: Path) -> str:
    """Return a path without its `..`, as seen from the root of the repository."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def _generated() -> dict[str, str]:
    return {
        "changelog.md": _from_repository("CHANGELOG.md"),
        "contributing.md": _from_repository("CONTRIBUTING.md"),
        "config.md": f"# Settings\n\nEvery setting, with its default.\n\n{_fenced('config.toml')}",
        "examples.md": _examples(),
    }


def _from_repository(name: str) -> str:
    """Return a page of the repository's root with links for the site."""
    text = _read(name).replace("](docs/", "](")
    for file, page in _MOVED.items():
        text = text.replace(f"]({file}", f"]({page}")
    return text


def _examples() -> str:
    files = sorted((_ROOT / "examples").rglob("*.yaml"))
    names = [str(file.relative_to(_ROOT)) for file in files]
    return "\n".join(["# Examples", "", *(f"## {name}\n\n{_fenced(name)}" for name in names)])


def _fenced(name: str) -> str:
    # Longer than any fence inside: prompts of models contain blocks.
    return f"~~~~{Path(name).suffix[1:]}\n{_read(name)}~~~~\n"


def _read(name: str) -> str:
    return (_ROOT / name).read_text(encoding="utf-8")
