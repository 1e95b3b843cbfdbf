"""Words that a reader stumbles over, and where they occur in comments, strings and pages."""

import io
import re
import tokenize
from collections.abc import Iterator
from typing import Final, NamedTuple

INSTEAD: Final = {
    "nobody": "no process, no caller, no person",
    "whoever": "the caller, the process, the person that",
    "whomever": "the caller, the person that",
    "somebody": "another process, a person",
    "anew": "again",
    "of which": "name the thing, in a sentence of its own",
    "to be had": "available, found",
    "so many": "the number",
    "in doubt": "unknown",
    "is told": "is notified, receives, sees",
    "are told": "are notified, receive, see",
    "was told": "was notified, received, saw",
    "were told": "were notified, received, saw",
    "be told": "be notified, receive, see",
    "is said": "name the actor",
    "the living": "live workers",
    "the dead": "dead workers",
    "lest": "so that … not",
    "whence": "from which",
    "thereof": "of it",
    "kept apart": "isolated",
}
"""Phrase → what to write instead."""

_PHRASE: Final = re.compile(
    r"\b(" + "|".join(phrase.replace(" ", r"[\s#]+") for phrase in INSTEAD) + r")\b", re.IGNORECASE
)
_ONE_WORD: Final = re.compile(r"['\"]\w+['\"]")
_TEXT: Final = {
    tokenize.COMMENT,
    tokenize.STRING,
    # Python 3.12 and later: the text between an f-string's braces.
    getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING),
}


class Finding(NamedTuple):
    """One phrase in one file."""

    path: str
    line: int
    phrase: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.phrase!r}: {INSTEAD[self.phrase]}"


def find(path: str, text: str) -> Iterator[Finding]:
    """Yield the phrases in a file: in comments and strings of Python, in all of any other text."""
    for line, part in _prose(text) if path.endswith(".py") else [(1, text)]:
        for match in _PHRASE.finditer(part):
            phrase = re.sub(r"[\s#]+", " ", match[1]).lower()
            yield Finding(path, line + part[: match.start()].count("\n"), phrase)


def _prose(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        # A string of one word is a value, such as the name of a system user.
        if token.type in _TEXT and not _ONE_WORD.fullmatch(token.string):
            yield token.start[0], token.string
