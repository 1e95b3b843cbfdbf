"""Open pages of the dashboard, as browsers have them: a stream each, and a fetch after each message.

`python -m bench.viewers URL COOKIE NUMBER PATH…` prints `open` when all streams are open. At the first
line on standard input it prints how many times a page was fetched, and ends.
"""

import asyncio
import sys
from collections import Counter
from dataclasses import dataclass

_counts: Counter[str] = Counter()


@dataclass(slots=True)
class OpenPage:
    """A connection for fetches of one page, and one for its stream."""

    address: tuple[str, int]
    cookie: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def fetch(self, path: str, cursor: str = "", tag: str = "") -> tuple[int, str]:
        """Fetch a page; return the status and the ETag."""
        headers = {"Accept-Encoding": "gzip"}
        if cursor:
            headers |= {"X-Agent-Cursor": cursor, "If-None-Match": tag}
        self.writer.write(self._head(path, headers))
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        found = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if length := int(found.get("content-length", 0)):
            await self.reader.readexactly(length)
        return int(lines[0].split()[1]), found.get("etag", "")

    async def watch(self, path: str, opened: asyncio.Semaphore) -> None:
        """Keep the page live, as its script does."""
        reader, writer = await asyncio.open_connection(*self.address)
        writer.write(self._head("/live", {}))
        await reader.readuntil(b"\r\n\r\n")
        opened.release()
        tag = ""
        try:
            while line := await reader.readline():
                if line.startswith(b"data: "):
                    _, tag = await self.fetch(path, line[6:].strip().decode(), tag)
                    _counts["fetched"] += 1
        finally:
            writer.close()
            self.close()

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()

    def _head(self, path: str, headers: dict[str, str]) -> bytes:
        host, port = self.address
        lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{port}", f"Cookie: {self.cookie}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()


async def open_page(url: str, cookie: str) -> OpenPage:
    """Connect to a server."""
    host, port = url.removeprefix("http://").split(":")
    return OpenPage((host, int(port)), cookie, *await asyncio.open_connection(host, int(port)))


async def main(url: str, cookie: str, pages: int, paths: list[str]) -> None:
    """Keep the pages open until a line comes."""
    opened = asyncio.Semaphore(0)
    viewers = [
        asyncio.create_task((await open_page(url, cookie)).watch(paths[n % len(paths)], opened))
        for n in range(pages)
    ]
    for _ in viewers:
        await opened.acquire()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    for viewer in viewers:
        viewer.cancel()
    await asyncio.gather(*viewers, return_exceptions=True)
    print(_counts["fetched"], flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4:]))
