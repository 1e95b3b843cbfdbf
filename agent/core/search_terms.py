"""The terms by which a text is found: one tokenizer for every database.

SQLite and PostgreSQL cut texts into words by rules of their own, which differ and read operators in
queries. So neither sees a text. `index_text` turns a text into words of the letters a to p, and
`match_words` a query; both databases index and compare those words as they are.

- Texts are compared in NFKC and casefolded. A word is a run of letters, marks and digits. `c++`, `c#`
  and an identifier such as `invoice_id` are one word, and their parts are words too.
- Scripts that do not separate words (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese) become pairs
  of neighbours, and the last character of a run a word alone: every character begins a word, so that a
  query of one character finds it anywhere.
- A query matches the beginnings of words, except that a single letter or digit of other scripts matches
  only itself.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_WORD_CHARS: Final = 64
"""Longer words are cut, in texts and in queries."""
MAX_QUERY_TERMS: Final = 32
"""The first terms of a query count; the rest is ignored."""

_UNSEPARATED: Final = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff"  # Korean
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"  # Chinese, signs
    "\u3040-\u309f\u30a0-\u30ff\u31f0-\u31ff"  # Japanese syllables
    "\u3100-\u312f\u31a0-\u31bf"  # Bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00016fe0-\U00018dff\U0001aff0-\U0001b16f\U00020000-\U000323af"
)
_RUN: Final = re.compile(f"(?P<pairs>[{_UNSEPARATED}]+)|(?P<word>[^{_UNSEPARATED}]+)")
_TAIL: Final = re.compile(r"\+\+|#(?!\w)")
_LETTERS: Final = bytes.maketrans(b"0123456789abcdef", b"abcdefghijklmnop")


@dataclass(frozen=True, slots=True)
class MatchWord:
    """One term of a query, as the index spells it."""

    word: str
    is_prefix: bool
    """Whether it also matches longer words that begin with it."""

    def matches(self, word: str) -> bool:
        """Whether it matches a word of an index text."""
        return word.startswith(self.word) if self.is_prefix else word == self.word


def folded(text: str) -> str:
    """Return a text without case and accents, to look for a part of it."""
    if text.isascii():
        return text.lower()
    letters = unicodedata.normalize("NFD", text.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


def index_text(text: str) -> str:
    """Return the terms of a text as words for an index, sorted, each once."""
    return " ".join(sorted({_encoded(term) for term in _terms(text)}))


def match_words(query: str) -> list[MatchWord]:
    """Return the different terms of a query, in its order."""
    terms = dict.fromkeys(_query_terms(query))
    return [
        MatchWord(_encoded(term), is_prefix=len(term) > 1 or _is_unseparated(term))
        for term in list(terms)[:MAX_QUERY_TERMS]
    ]


def _terms(text: str) -> Iterator[str]:
    """Yield the terms of a text that is indexed."""
    for is_pairs, run in _runs(text):
        if is_pairs:
            yield from (run[place : place + 2] for place in range(len(run)))
            continue
        yield run[:MAX_WORD_CHARS]
        for part in run.rstrip("+#").split("_"):
            if part:
                yield part[:MAX_WORD_CHARS]


def _query_terms(query: str) -> Iterator[str]:
    for is_pairs, run in _runs(query):
        if is_pairs and len(run) > 1:
            yield from (run[place : place + 2] for place in range(len(run) - 1))
        else:
            yield run[:MAX_WORD_CHARS]


def _runs(text: str) -> Iterator[tuple[bool, str]]:
    """Yield the runs of word characters, and whether each is in a script without separated words."""
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    place = 0
    while place < len(text):
        start = place
        while place < len(text) and _is_word_char(text[place]):
            place += 1
        if place == start:
            place += 1
            continue
        tail = _TAIL.match(text, place)
        for match in _RUN.finditer(text[start:place]):
            is_pairs = match["pairs"] is not None
            run = match[0].strip("_") if not is_pairs else match[0]
            if not is_pairs and tail is not None and match.end() == place - start:
                run += tail[0]
            if run:
                yield is_pairs, run


def _is_word_char(char: str) -> bool:
    return char == "_" or unicodedata.category(char)[0] in "LMN"


def _is_unseparated(term: str) -> bool:
    return re.match(f"[{_UNSEPARATED}]", term) is not None


def _encoded(term: str) -> str:
    """Spell a term in letters, two a byte: a term's beginning is spelled as the word's beginning."""
    return term.encode("utf-8", "surrogatepass").hex().encode().translate(_LETTERS).decode()
