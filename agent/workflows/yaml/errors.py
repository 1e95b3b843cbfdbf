"""Explains the errors of ruamel.yaml to the author of a file."""

import re
from typing import Any, Final

from ruamel.yaml.error import MarkedYAMLError

_UNENDED: Final = {
    "while parsing a flow mapping": "this { is never closed",
    "while parsing a flow sequence": "this [ is never closed",
    "while scanning a quoted scalar": "this quote is never closed",
}
_STRANGE = re.compile(r"found character '(.+)' that cannot start any token")


def explain(error: MarkedYAMLError, language: str) -> tuple[Any, str, str | None]:
    """Return where and why a text is not YAML, or JSON, with a hint."""
    problem, context = str(error.problem or ""), str(error.context or "")
    strange = _STRANGE.fullmatch(problem)
    mark = error.problem_mark or error.context_mark
    hint: str | None = None
    if context in _UNENDED and ("<stream end>" in problem or "end of stream" in problem):
        # The start of the construct helps a person; its end is only the end of the file.
        mark, message = error.context_mark, _UNENDED[context]
    elif "expected the node content" in problem and "<stream end>" in problem:
        message, hint = "the file ends where a value belongs", "close what is open"
    elif problem.startswith("expected ',' or"):
        message = f"a comma or {problem.split()[3].strip(',')} is missing before this"
        hint = f"what it would close begins in line {error.context_mark.line + 1}"
    elif strange is not None and strange[1] == "\\t":
        message, hint = "a tab cannot indent", "use spaces"
    elif strange is not None:
        message, hint = f"a text cannot begin with {strange[1]}", "put it in quotes"
    elif problem == "mapping values are not allowed here":
        message = "there cannot be a ':' here"
        hint = "put a text that holds ': ' in quotes, or check the indentation"
    elif problem.startswith("expected <block end>"):
        message = "this does not fit the lines above it"
        hint = "check the indentation, the dashes and the quotes"
    else:
        message = problem or context or "it cannot be read"
    return mark, f"not {language}: {message}", hint


_BLOCK_START = re.compile(
    r"(?P<indent> *+)(?:- +)*+(?P<key>[^#\s][^#]*?:) +[|>][-+0-9]*\s*(?:#.*)?"
)
_NEXT_KEY = re.compile(r" *(?:- |-$|#|[^\s#'\"]+:(?:\s|$))")
_MOST_BLOCKS: Final = 1000


def find_unindented_block(text: str, mark: Any) -> str | None:
    """Return a hint if the last `key: |` before a mark is followed by text that is not indented."""
    if mark is None:
        return None
    lines = text.split("\n")[: mark.line + 1]
    for number in range(len(lines) - 1, max(-1, len(lines) - _MOST_BLOCKS), -1):
        start = _BLOCK_START.fullmatch(lines[number])
        if start is None:
            continue
        after = next(
            (index for index in range(number + 1, len(lines)) if lines[index].strip()), None
        )
        if after is None:
            return None
        indent = len(lines[after]) - len(lines[after].lstrip(" "))
        if indent > len(start["indent"]) or _NEXT_KEY.match(lines[after]):
            return None
        wanted = " " * (len(start["indent"]) + 2)
        return (
            f"the text of `{start['key'].strip()} |` in line {number + 1} is not indented: write"
            f" line {after + 1} as `{wanted}{lines[after].strip()}`"
        )
    return None
