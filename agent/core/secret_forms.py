"""The forms in which encoders write a secret, each as a pattern with anchors.

A secret is found character by character, so that mixed forms are found as well: as it is,
percent-encoded, HTML-escaped, escaped as in JSON and Python, quoted for a shell; and as part of base64
(any alignment, both alphabets) and of hex (also in lines, or with spaces or colons between the bytes).
Letters and digits are either all as they are or all escaped. A form that no encoder makes, such as a
reversed text, is not found.

An anchor is a few characters that every text with the form contains: `redaction` searches for
anchors first, since patterns are slow.
"""

import base64
import html
import html.entities
import json
import re
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Final
from urllib.parse import quote, quote_plus

MIN_LENGTH: Final = 4
"""Shorter values also occur in ordinary text."""
_MIN_ENCODED: Final = 6
"""Shorter pieces of base64 and hex are found in ordinary text."""
_MIN_ANCHOR: Final = 3
_GRAM: Final = 3
_ANCHOR_LENGTH: Final = 12
_MOST_LINES: Final = 200
"""Lines of one secret that are searched for one by one, the longest of them: a key has about fifty."""
_MOST_LENGTH: Final = 16_384
"""A longer secret is searched for as plain text: a pattern of its length would take seconds to make."""
_MOST_ESCAPED: Final = 1000
"""A longer secret is not searched for with every letter escaped, for the same reason."""
_PLAIN: Final = re.compile("[A-Za-z0-9]+")
"""What no encoder changes."""
_RUN: Final = re.compile("[A-Za-z0-9]{2,4}")
ESCAPE_MARKS: Final = ("%", "\\", "&")
NO_MARK: Final = ""
_BACKSLASHES: Final = re.compile(r"(\\+)")
_BREAK: Final = r"(?:\s|\\[rn])*"
_BASE64: Final = "[A-Za-z0-9+/_-]"
_URL_SAFE: Final = str.maketrans("+/", "-_")
_SHORT_ESCAPES: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_SHELL_ESCAPES: Final = {"'": ("'\"'\"'", "'\\''")}


Gram = tuple[str, ...]
"""Three characters in a row, in lower case."""
AnchoredForm = tuple[Gram | None, str, "Form"]
"""An anchor with its form, and one of the anchor's grams if it is long enough to have any."""


class Form:
    """One way in which a secret may be written."""

    def __init__(self, anchors: Iterable[str], pattern: str, longest: int) -> None:
        self.anchors = tuple(dict.fromkeys(anchors))
        """One of these is in every text that holds the form; none: the pattern must be tried."""
        self.longest = longest
        self._text = pattern

    @cached_property
    def anchored(self) -> tuple[AnchoredForm, ...]:
        """Its anchors; a form without any has the empty one, which is in every text."""
        return self._with_grams(self.anchors or ("",))

    def _with_grams(self, anchors: Iterable[str]) -> tuple[AnchoredForm, ...]:
        return tuple((_rare_gram(anchor.lower()), anchor, self) for anchor in anchors)

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self._text)

    def replace(self, text: str, mark: str) -> str:
        """Put a mark wherever the form is."""
        return self._pattern.sub(mark, text)


class _LiteralForm(Form):
    """A form that is searched for as it is."""

    def __init__(self, text: str) -> None:
        run = _PLAIN.search(text, 0, 1000)
        super().__init__([run[0][:_ANCHOR_LENGTH]] if run else [], text, len(text))

    def replace(self, text: str, mark: str) -> str:
        """Put a mark wherever the text is."""
        return text.replace(self._text, mark)


class FoldedForm(Form):
    """A form with hex digits in either case: its anchors are searched for in lower case."""

    anchors_of: dict[str, list[str]]
    """The anchors by a mark that is in every text which contains them."""

    def anchored_by(self, mark: str) -> tuple[AnchoredForm, ...]:
        """Return its anchors that go with a mark."""
        return self._anchored_of_marks.get(mark, ())

    @cached_property
    def _anchored_of_marks(self) -> dict[str, tuple[AnchoredForm, ...]]:
        return {mark: self._with_grams(anchors) for mark, anchors in self.anchors_of.items()}


class _HexForm(FoldedForm):
    """A form of hex digits alone."""

    def __init__(self, anchors: list[str], pattern: str, longest: int) -> None:
        self.anchors_of = {NO_MARK: anchors}
        super().__init__(anchors, pattern, longest)


class _EscapedForm(FoldedForm):
    """A text whose letters and digits are all escaped; most encoders leave these as they are."""

    def __init__(self, text: str) -> None:
        self.anchors_of = _escaped_anchors(text)
        anchors = [anchor for anchors in self.anchors_of.values() for anchor in anchors]
        chars = (
            rf"\\*+(?:{'|'.join(_encodings(char))})" if _PLAIN.match(char) else _char(char)
            for char in text
        )
        super().__init__(anchors, "".join(chars), 12 * len(text))


def forms_of(secret: str) -> Iterator[Form]:
    """Yield the forms in which a secret, and each of its lines, is searched for."""
    lines = {line.strip(): None for line in secret.splitlines()}
    longest = sorted(lines, key=len, reverse=True)[:_MOST_LINES]
    for line in longest:
        if MIN_LENGTH <= len(line) <= _MOST_LENGTH:
            yield _as_text(line)
    if len(secret) > _MOST_LENGTH:
        yield from map(_LiteralForm, spellings(secret))
        return
    for text in {secret, secret.strip()} - lines.keys():
        yield _as_text(text)
    if len(secret) <= _MOST_ESCAPED and "\\" not in secret and _RUN.search(secret):
        yield _EscapedForm(secret.strip())
    data = secret.strip().encode("utf-8", "surrogatepass")
    yield from _as_base64(data)
    if len(data) * 2 >= _MIN_ENCODED:
        yield _as_hex(data)


def spellings(secret: str) -> list[str]:
    """Return the usual forms of a secret as plain texts, for a search that knows no patterns."""
    secret = secret.strip()
    quoted = (quote(secret), quote(secret, safe=""), quote_plus(secret))
    written = [
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        html.escape(secret),
        *quoted,
        *(re.sub("%..", lambda match: match[0].lower(), text) for text in quoted),
    ]
    data = secret.encode("utf-8", "surrogatepass")
    for _, core in _cores(data):
        written += [core, core.translate(_URL_SAFE)]
    if len(data) * 2 >= _MIN_ENCODED:
        written += [data.hex(), data.hex().upper()]
    return list(dict.fromkeys(written))


def grams_of(text: str) -> frozenset[Gram]:
    """Return all grams of a text, which must be in lower case."""
    return frozenset(zip(*(text[start:] for start in range(_GRAM)), strict=False))


def _rare_gram(anchor: str) -> Gram | None:
    """Return the gram of an anchor that is least likely in a text: letters beside digits."""
    grams = [tuple(anchor[start : start + _GRAM]) for start in range(len(anchor) - _GRAM + 1)]
    mixed = (gram for gram in grams if len({char.isdigit() for char in gram}) > 1)
    return next(mixed, grams[0] if grams else None)


def _as_text(text: str) -> Form:
    runs = [run for run in _PLAIN.findall(text) if len(run) >= _MIN_ANCHOR]
    anchors = [max(runs, key=len)] if runs else []
    longest = sum(1 if _PLAIN.match(char) else len(_numeric(char)) + 12 for char in text)
    pieces = _BACKSLASHES.split(text)
    # Not from the middle of a run of backslashes: each of them would be tried as a beginning.
    start = "" if _PLAIN.match(text) else r"(?<!\\)"
    written = (
        _backslashes(len(piece)) if number % 2 else "".join(map(_char, piece))
        for number, piece in enumerate(pieces)
    )
    return Form(anchors, start + "".join(written), longest)


def _escaped_anchors(text: str) -> dict[str, list[str]]:
    """Return, for each mark of an escape, how a few characters of a text look in such escapes."""
    match = _RUN.search(text)
    run = match[0] if match else ""
    octets = [f"{ord(char):02x}" for char in run]
    numbers = [str(ord(char)) for char in run]
    return {
        "%": ["%".join(["", *octets]), "%25".join(["", *octets])],
        "\\": [
            kind + f"{slashes}{kind}".join(octets)
            for kind in ("u00", "x")
            for slashes in ("\\", "\\\\")
        ],
        "&": [
            f"#{kind}" + f";{between}#{kind}".join(codes) + ";"
            for between in ("&", "&amp;")
            for kind, codes in (("", numbers), ("x", octets))
        ],
    }


def _as_hex(data: bytes) -> "_HexForm":
    """Return the form of hex digits: in one, in lines, or with spaces or colons between the bytes."""
    digits = data.hex()
    # Two of each: a line break may go through one of them.
    whole = [digits[:_ANCHOR_LENGTH], digits[_ANCHOR_LENGTH : 2 * _ANCHOR_LENGTH]]
    parts = [part for part in (data[:4], data[4:8]) if len(part) * 2 >= _MIN_ENCODED]
    spaced = [part.hex(separator) for part in parts for separator in " :"]
    anchors = [anchor for anchor in (*whole, *spaced) if len(anchor) >= _MIN_ENCODED]
    pairs = (digits[at : at + 2] for at in range(0, len(digits), 2))
    pattern = r"(?:[\s:]|\\[rn])*+".join(pairs)
    return _HexForm(anchors, f"(?i:{pattern})", 2 * len(digits))


def _backslashes(count: int) -> str:
    """Return a pattern for a number of backslashes; each may be doubled any number of times."""
    forms = "|".join(sorted(_encodings("\\"), key=len, reverse=True))
    return rf"(?:\\*+(?:{forms})|\\++){{1,{count}}}"


def _char(char: str) -> str:
    """Return a pattern for one character, which is no backslash, in all its forms."""
    if _PLAIN.match(char):
        return re.escape(char)
    forms = {re.escape(char), *_encodings(char)}
    # JSON inside of JSON doubles what escapes. No form begins with a backslash: none is given back.
    return rf"\\*+(?:{'|'.join(sorted(forms, key=len, reverse=True))})"


def _encodings(char: str) -> set[str]:
    """Return patterns for the forms in which encoders write a character, without a backslash."""
    forms = {re.escape(escape) for escape in _SHELL_ESCAPES.get(char, ())}
    if char in _SHORT_ESCAPES:
        forms.add(_SHORT_ESCAPES[char])
    if char == " ":
        forms.add(r"\+")
    octets = char.encode("utf-8", "surrogatepass")
    # What is encoded twice has %25 for %.
    forms.add("".join(f"%(?:25)*{_hex(byte)}" for byte in octets))
    forms.add(r"\\+".join(f"x{_hex(byte)}" for byte in octets))
    if ord(char) < 256:
        forms.add(f"x{_hex(ord(char))}")
    forms.add(f"U(?i:{ord(char):08x})")
    units = char.encode("utf-16-be", "surrogatepass")
    pairs = [units[at : at + 2] for at in range(0, len(units), 2)]
    forms.add(r"\\+".join("u" + "".join(map(_hex, pair)) for pair in pairs))
    names = [name for name, number in html.entities.name2codepoint.items() if number == ord(char)]
    names += ["apos"] if char == "'" else []
    forms.add(f"&(?:amp;)*(?:{'|'.join([_numeric(char), *names])});")
    return forms


def _numeric(char: str) -> str:
    return rf"#0*{ord(char)}|#[xX]0*(?i:{ord(char):x})"


def _hex(byte: int) -> str:
    return f"(?i:{byte:02x})"


def _cores(data: bytes) -> Iterator[tuple[int, str]]:
    """Yield the base64 that is the same whatever stands before and after, for each alignment."""
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + data + bytes(3)).decode()
        first = -(-before * 8 // 6)
        core = encoded[first : (before + len(data)) * 8 // 6]
        if len(core) >= _MIN_ENCODED:
            yield before, core


def _as_base64(data: bytes) -> Iterator[Form]:
    for before, core in _cores(data):
        # Two anchors: a line break may go through one of them.
        anchors = [core[:_ANCHOR_LENGTH], core[_ANCHOR_LENGTH : 2 * _ANCHOR_LENGTH]]
        anchors = [anchor for anchor in anchors if len(anchor) >= _MIN_ENCODED]
        if any(char in anchor for anchor in anchors for char in "+/"):
            anchors = _plain_parts(anchors)
        inner = _BREAK.join(map(_base64_char, core))
        # The characters at its ends hold some bits of the secret too.
        around = f"{_BASE64}?" if before else ""
        pattern = f"{around}{inner}{_BASE64}?(?:=|%3[dD]){{0,2}}"
        yield Form(anchors, pattern, 3 * len(core) + 8)


def _plain_parts(anchors: list[str]) -> list[str]:
    """Return of each anchor the longest part that is the same in both alphabets."""
    parts = [max(re.split("[+/]", anchor), key=len) for anchor in anchors]
    # Too short a part occurs in any text: then the pattern itself is tried.
    return parts if all(len(part) >= _MIN_ANCHOR for part in parts) else []


def _base64_char(char: str) -> str:
    if char == "+":
        return "(?:[+-]|%2[bB])"
    if char == "/":
        return r"(?:\\*/|_|%2[fF])"
    return char
