r"""Which addresses a model may ask for: at or below those of the list, and written in one way only.

Servers read unusual paths differently: some decode twice, some drop `;…`, some take `\` for `/`. An
address that one of them could read as another place is refused, not normalised.
"""

import re
import unicodedata
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_to_bytes

_ADDRESS: Final = re.compile(
    r"(?P<scheme>[A-Za-z]+)://(?P<host>[^/?#\\@:\[\]]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>[0-9]{1,5}))?"
    r"(?P<path>(?:/[^?#]*)?)(?:\?[^#]*)?(?:#.*)?"
)
_PORTS: Final = {"http": 80, "https": 443}
_HOST: Final = re.compile(r"[a-z0-9](?:[a-z0-9._-]*[a-z0-9_])?|\[[0-9a-f:.]+\]")
_ENCODED: Final = re.compile(r"%(?![0-9A-Fa-f]{2})|%(?:2[eEfF5]|3[bB]|5[cC]|[01][0-9A-Fa-f]|7[fF])")
"""A percent sign alone, or an encoded dot, slash, percent sign, semicolon, backslash or control."""
_STRUCTURE: Final = frozenset("/\\.;%")
_ASCII: Final = "".join(map(chr, range(0x21, 0x7F)))


@dataclass(frozen=True, slots=True)
class _Place:
    origin: tuple[str, str, int]
    path: str


def may_visit(url: str, allowed: list[str]) -> bool:
    """Whether an address is one of these, or below one."""
    asked = _place(url)
    if asked is None or _is_ambiguous(asked.path):
        return False
    return any(_is_below(asked, prefix) for prefix in map(_place, allowed))


def _is_below(asked: _Place, prefix: _Place | None) -> bool:
    if prefix is None or asked.origin != prefix.origin:
        return False
    base = prefix.path.rstrip("/")
    return asked.path == base or asked.path.startswith(f"{base}/")


def _place(url: str) -> _Place | None:
    """Take an address apart; None for one that is not plainly written."""
    found = _ADDRESS.fullmatch(url)
    if found is None or "\\" in url or not all(char.isprintable() and char != " " for char in url):
        return None
    scheme, host = found["scheme"].lower(), _ascii(found["host"])
    if scheme not in _PORTS or host is None or not _HOST.fullmatch(host):
        return None
    port = int(found["port"]) if found["port"] else _PORTS[scheme]
    path = quote(found["path"], safe=_ASCII)
    path = re.sub("%[0-9A-Fa-f]{2}", lambda code: code[0].upper(), path)
    return _Place((scheme, host, port), path)


def _ascii(host: str) -> str | None:
    """Write a host as it goes over the wire."""
    host = host.lower()
    if host.isascii():
        return host
    # Rarely needed, and slow to import.
    import idna

    try:
        return idna.encode(host).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        return None


def _is_ambiguous(path: str) -> bool:
    """Whether some server could read a path as another one."""
    if _ENCODED.search(path):
        return True
    try:
        # Strictly: overlong forms of a slash or a dot are no UTF-8.
        text = unquote_to_bytes(path).decode("utf-8")
    except UnicodeDecodeError:
        return True
    if not text.isprintable() or ";" in text or "\\" in text:
        return True
    for char in text:
        if not char.isascii() and _STRUCTURE & set(unicodedata.normalize("NFKC", char)):
            return True
    first, *segments = text.split("/")
    last = segments.pop() if segments else ""
    # Some systems drop dots and spaces at the end of a name.
    if first or any(not segment.strip(". ") for segment in segments):
        return True
    return bool(last) and not last.strip(". ")
