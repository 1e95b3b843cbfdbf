"""A store of large values that hangs or fails when a test says so; fsspec knows it as `faulty://`."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

URL = "faulty://bucket/kept"
CONNECTING_URL = "connecting://bucket/kept"


class FaultyStore(MemoryFileSystem):  # type: ignore[misc]
    """A store in memory; its calls wait for `is_well`, or raise at once."""

    protocol = "faulty"
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    is_answering = threading.Event()
    problem: Exception | None = None
    calls = 0
    given: ClassVar[dict[str, Any]] = {}
    """The options that it was made with last."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        FaultyStore.given = options

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        self._answer()
        super().pipe_file(path, value, **options)

    def cat_file(self, path: str, *args: Any, **options: Any) -> bytes:
        self._answer()
        found: bytes = super().cat_file(path, *args, **options)
        return found

    def _answer(self) -> None:
        FaultyStore.calls += 1
        if FaultyStore.problem is not None:
            raise FaultyStore.problem
        FaultyStore.is_answering.wait()


class ConnectingStore(FaultyStore):
    """The same store with a driver that connects in its constructor, as those of FTP and SFTP do."""

    protocol = "connecting"
    cachable = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._answer()


FaultyStore.is_answering.set()
fsspec.register_implementation("faulty", FaultyStore, clobber=True)
fsspec.register_implementation("connecting", ConnectingStore, clobber=True)


def break_down(how: str) -> None:
    """Let the store hang, or refuse everything."""
    if how == "hangs":
        FaultyStore.is_answering.clear()
    else:
        FaultyStore.problem = ConnectionRefusedError("connection refused by the store")


def recover() -> None:
    """Let the store work again, also for the calls that hang."""
    FaultyStore.problem = None
    FaultyStore.is_answering.set()


@contextmanager
def broken(how: str) -> Iterator[None]:
    """Let the store hang (`hangs`) or fail (`raises`) inside a block."""
    break_down(how)
    try:
        yield
    finally:
        recover()
