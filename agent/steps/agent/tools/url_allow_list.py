r"""Which addresses a model may request: those of the list and below, in one spelling only.

Servers read unusual paths differently: some decode twice, some drop `;…`, some read `\` as `/`. An
address that one of them could read as another path is refused, not normalised.
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
class _Address:
    origin: tuple[str, str, int]
    path: str


def may_visit(url: str, allowed: list[str]) -> bool:
    """Whether an address is one of these, or below one."""
    requested = _parse(url)
    if requested is None or _is_ambiguous(requested.path):
        return False
    return any(_is_below(requested, prefix) for prefix in map(_parse, allowed))


def _is_below(requested: _Address, prefix: _Address | None) -> bool:
    if prefix is None or requested.origin != prefix.origin:
        return False
    base = prefix.path.rstrip("/")
    return requested.path == base or requested.path.startswith(f"{base}/")


def _parse(url: str) -> _Address | None:
    """Parse an address; None for one in an unusual spelling."""
    match = _ADDRESS.fullmatch(url)
    if match is None or "\\" in url or not all(char.isprintable() and char != " " for char in url):
        return None
    scheme, host = match["scheme"].lower(), _ascii(match["host"])
    if scheme not in _PORTS or host is None or not _HOST.fullmatch(host):
        return None
    port = int(match["port"]) if match["port"] else _PORTS[scheme]
    path = quote(match["path"], safe=_ASCII)
    path = re.sub("%[0-9A-Fa-f]{2}", lambda code: code[0].upper(), path)
    return _Address((scheme, host, port), path)


def _ascii(host: str) -> str | None:
    """Return a host as it is sent over the wire."""
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
