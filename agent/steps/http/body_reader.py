"""Reads a response's body up to a limit, also a compressed one.

The HTTP library would decompress a whole chunk at once, and nested encodings too: a few bytes could
become more than fits into memory.
"""

import zlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

ENCODINGS: Final = "gzip, deflate"
"""The accepted encodings; a body in any other is returned as it came."""

_PIECE_BYTES: Final = 65_536
_WINDOWS: Final = {
    "gzip": 16 + zlib.MAX_WBITS,
    "x-gzip": 16 + zlib.MAX_WBITS,
    "deflate": zlib.MAX_WBITS,
}


class BadEncodingError(Exception):
    """The body does not match its `Content-Encoding`."""


def is_known(encoding: str) -> bool:
    """Whether `read` decodes this encoding."""
    return encoding.strip().lower() in (*_WINDOWS, "identity", "")


async def read(parts: AsyncIterator[bytes], encoding: str, limit_bytes: int) -> bytes | None:
    """Return a decoded body; None when it is larger than the limit."""
    window = _WINDOWS.get(encoding.strip().lower())
    decompressor = None if window is None else _Decompressor(window)
    body = bytearray()
    async for part in parts:
        for piece in (part,) if decompressor is None else decompressor.pieces(part):
            body += piece
            if len(body) > limit_bytes:
                return None
    if decompressor is not None:
        decompressor.finish()
    return bytes(body)


class _Decompressor:
    """Decompresses a body piece by piece, so that no piece is large."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._stream: zlib._Decompress | None = None

    def pieces(self, part: bytes) -> Iterator[bytes]:
        while part:
            if self._stream is None or self._stream.eof:
                # A body may be several compressed streams, one after another.
                self._stream = self._open(part)
            piece = self._decompress(self._stream, part)
            yield piece
            part = self._stream.unused_data if self._stream.eof else self._stream.unconsumed_tail
            while not part and len(piece) == _PIECE_BYTES:
                piece = self._decompress(self._stream, b"")
                yield piece

    def finish(self) -> None:
        """Raise `BadEncodingError` if the end is missing."""
        if self._stream is not None and not self._stream.eof:
            raise BadEncodingError("the compressed body ends too early")

    def _open(self, part: bytes) -> "zlib._Decompress":
        if self._window == zlib.MAX_WBITS and part[0] & 0x0F != zlib.DEFLATED:
            # Some servers leave out the zlib header of `deflate`.
            self._window = -zlib.MAX_WBITS
        return zlib.decompressobj(self._window)

    def _decompress(self, stream: "zlib._Decompress", part: bytes) -> bytes:
        try:
            return stream.decompress(part, _PIECE_BYTES)
        except zlib.error as error:
            raise BadEncodingError(f"the compressed body cannot be read: {error}") from None
