"""Reading a response's body within a bound, however small it was made for its way.

The HTTP library would unpack a whole part of the body at once, and one encoding inside another: a
few bytes could become more than there is memory.
"""

import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

ENCODINGS: Final = "gzip, deflate"
"""What we ask for; a body in any other is given as it came."""

_PIECE_BYTES: Final = 65_536
_WINDOWS: Final = {
    "gzip": 16 + zlib.MAX_WBITS,
    "x-gzip": 16 + zlib.MAX_WBITS,
    "deflate": zlib.MAX_WBITS,
}


class BadEncodingError(Exception):
    """The body is not what its `Content-Encoding` says."""


def is_known(encoding: str) -> bool:
    """Whether a body in this encoding is unpacked by `read`, or is not packed at all."""
    return encoding.strip().lower() in (*_WINDOWS, "identity", "")


async def read(parts: AsyncIterator[bytes], encoding: str, limit_bytes: int) -> bytes | None:
    """Return a body as its sender meant it; None when it is larger than the limit."""
    window = _WINDOWS.get(encoding.strip().lower())
    unpacking = None if window is None else _Unpacking(window)
    body = bytearray()
    async for part in parts:
        for piece in (part,) if unpacking is None else unpacking.pieces(part):
            body += piece
            if len(body) > limit_bytes:
                return None
    if unpacking is not None:
        unpacking.finish()
    return bytes(body)


class _Unpacking:
    """Unpacks a body piece by piece, so that no part of it becomes large at once."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._packed: zlib._Decompress | None = None

    def pieces(self, part: bytes) -> Iterator[bytes]:
        while part:
            if self._packed is None or self._packed.eof:
                # A body may be several packed ones after each other.
                self._packed = self._open(part)
            piece = self._unpack(self._packed, part)
            yield piece
            part = self._packed.unused_data if self._packed.eof else self._packed.unconsumed_tail
            while not part and len(piece) == _PIECE_BYTES:
                piece = self._unpack(self._packed, b"")
                yield piece

    def finish(self) -> None:
        """Check that nothing is missing."""
        if self._packed is not None and not self._packed.eof:
            raise BadEncodingError("the packed body ends too early")

    def _open(self, part: bytes) -> "zlib._Decompress":
        if self._window == zlib.MAX_WBITS and part[0] & 0x0F != zlib.DEFLATED:
            # Some senders leave out what `deflate` puts around the data.
            self._window = -zlib.MAX_WBITS
        return zlib.decompressobj(self._window)

    def _unpack(self, packed: "zlib._Decompress", part: bytes) -> bytes:
        try:
            return packed.decompress(part, _PIECE_BYTES)
        except zlib.error as problem:
            raise BadEncodingError(f"the packed body cannot be read: {problem}") from None
