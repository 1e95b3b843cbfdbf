"""Stores for artifacts outside the database: a directory, or an object store by its URL.

The artifact's row in the database has the address of its content, so that reading needs no
configuration. Content is written before its row and removed after it.
"""

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from agent.core.clock import SECOND
from agent.core.files.file_sync import sync
from agent.core.ids import new_id
from agent.store.artifacts.bounded_calls import CircuitBreaker
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault

DEFAULT_SECONDS: Final = 30.0
SHOWN_SECONDS: Final = 5.0
"""How long a person waits for a value before the rest is shown without it."""
_BUCKET_SCHEMES: Final = frozenset(
    (
        "s3",
        "s3a",
        "gs",
        "gcs",
        "az",
        "abfs",
        "abfss",
        "adl",
        "oss",
        "oci",
        "r2",
        "b2",
        "cos",
        "obs",
        "tos",
    )
)
"""The schemes of object stores, which need no directories."""
_PROBE: Final = b"written by `agent doctor`"

Options = Mapping[str, Any]


class BlobStores:
    """The stores outside the database, each called within bounds.

    `options` returns what the driver of the configured store needs besides its URL. It is called at
    each use, since the options may contain secrets; `hide` removes those from messages.
    """

    def __init__(
        self,
        url: str = "",
        options: Callable[[], Options] | None = None,
        timeout_seconds: float = DEFAULT_SECONDS,
        hide: Callable[[str], str] = str,
        jobs_url: str = "",
    ) -> None:
        self.url = url
        self.jobs_url = jobs_url
        """Where the objects of jobs are; empty where no configuration says it."""
        self.timeout_seconds = timeout_seconds
        self._options = options
        self._hide = hide
        self._breakers: dict[str, CircuitBreaker] = {}

    def breaker(self, address: str) -> CircuitBreaker:
        """Return the circuit breaker of the store that an address belongs to."""
        name = store_of(address)
        return self._breakers.setdefault(name, CircuitBreaker(name))

    def open(self, url: str) -> "BlobStore":
        """Return a store to write to."""
        return BlobStore(url, lambda: self.options(url), self._hide)

    def options(self, address: str) -> Options:
        """Return the driver's options for an address: none except for the configured store."""
        is_own = self._options is not None and store_of(address) == store_of(self.url)
        return self._options() if is_own and self._options is not None else {}

    def read(self, address: str, seconds: float = SHOWN_SECONDS) -> bytes | None:
        """Return content by its address within this time; None if it does not exist."""
        return self.breaker(address).call(lambda: self.read_now(address), seconds)

    def read_now(self, address: str) -> bytes | None:
        """Return content by its address, without a time limit; None if it does not exist."""
        return read(address, self.options(address), self._hide)

    def remove(self, address: str, before: int) -> None:
        """Remove content that has not been written since an instant, if its store answers."""
        try:
            self.breaker(address).call(
                lambda: remove(address, before, self.options(address)), self.timeout_seconds
            )
        except StoreError:
            # Content that stays behind only takes space: nothing refers to it.
            return

    def probe(self, url: str, seconds: float) -> None:
        """Write, read and remove a probe; raise `StoreError` if that fails."""

        def exchange() -> None:
            address = self.open(url).write(f"doctor-{new_id()}", _PROBE)
            content = self.read_now(address)
            remove(address, _FOREVER, self.options(address))
            if content != _PROBE:
                raise StoreError(Fault.UNREACHABLE, f"{store_of(url)} returned other content")

        self.breaker(url).call(exchange, seconds)


_FOREVER: Final = 2**62


def stores_of(database: Database) -> BlobStores:
    """Return the stores of a database; without configuration, they read and write without options."""
    if database.blob_stores is None:
        make = database.make_blob_stores or BlobStores
        database.blob_stores = make()
    return database.blob_stores


def store_of(address: str) -> str:
    """Name the store of an address: a bucket or host by its URL, else the directory.

    Events and messages show this name, so a password in the URL is left out.
    """
    if "://" not in address:
        return str(Path(address).parent.parent) if _is_content(address) else address
    parts = urlsplit(address)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


def _is_content(address: str) -> bool:
    """Whether a path is that of content, `BASE/ab/abcd…`, and not the base."""
    path = Path(address)
    return path.parent.name == path.name[:2] and len(path.parent.name) == 2


class BlobStore:
    """A store to write to; a plain path or `file://` needs nothing, other URLs need fsspec.

    A missing driver or an unknown option raises `StoreError` here. The driver itself is not created:
    some drivers connect in their constructors, and the store may be unreachable.
    """

    def __init__(
        self,
        url: str,
        options: Callable[[], Options] | None = None,
        hide: Callable[[str], str] = str,
    ) -> None:
        self._base = url.removeprefix("file://").rstrip("/")
        self._options = options or dict
        self._hide = hide
        if "://" in self._base:
            try:
                _check_driver(self._base, self._options())
            except Exception as error:
                text = f"artifacts cannot be kept at {self._base}: {error}"
                raise StoreError(Fault.LOST, hide(text)) from None

    def connect(self) -> None:
        """Create the driver; some drivers connect to the store then."""
        try:
            if "://" in self._base:
                files_of(self._base, self._options())
        except Exception as error:
            text = f"the artifact store cannot be used at {self._base}: {_words(error)}"
            raise StoreError(Fault.UNREACHABLE, self._hide(text)) from None

    def write(self, name: str, data: bytes) -> str:
        """Write content under its name, durably, and return its address."""
        address = f"{self._base}/{name[:2]}/{name}"
        try:
            if "://" in self._base:
                files, path = files_of(address, self._options())
                make_directory_of(address, files, path)
                files.pipe_file(path, data)
            else:
                _write_file(Path(address), data)
        # Drivers raise errors of their own; none is caused by the content.
        except Exception as error:
            text = f"the artifact store cannot keep {address}: {_words(error)}"
            raise StoreError(Fault.UNREACHABLE, self._hide(text)) from None
        return address


def read(
    address: str, options: Options | None = None, hide: Callable[[str], str] = str
) -> bytes | None:
    """Return content by its address; None if it does not exist."""
    try:
        if "://" in address:
            files, path = files_of(address, options)
            content: bytes = files.cat_file(path)
            return content
        return Path(address).read_bytes()
    except FileNotFoundError as error:
        if "://" not in address and not Path(address).parent.is_dir():
            # The directory is missing too: it is not mounted, or was moved.
            raise StoreError(
                Fault.UNREACHABLE,
                f"the artifact at {address} cannot be read: its directory is not there",
            ) from error
        return None
    except Exception as error:
        text = f"the artifact at {address} cannot be read: {_words(error)}"
        raise StoreError(Fault.UNREACHABLE, hide(text)) from None


def remove(address: str, before: int, options: Options | None = None) -> None:
    """Remove content that was not written since an instant; missing content is no error.

    A later write means a new row that is about to refer to the content.
    """
    try:
        if "://" in address:
            files, path = files_of(address, options)
            if _written_at(files, path) < before:
                files.rm_file(path)
        elif Path(address).stat().st_mtime * SECOND < before:
            Path(address).unlink()
    except OSError:
        # Content that stays behind only takes space: nothing refers to it.
        return


def _words(error: Exception) -> str:
    return error.message if isinstance(error, StoreError) else str(error) or type(error).__name__


def replace_file(path: Path, data: bytes) -> None:
    """Write a file as a whole; the entry of its directory is not durable yet."""
    # Under another name first: a crash in between leaves no partial content.
    partial = path.with_name(f".{path.name}.{new_id()}")
    try:
        with partial.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException:
        # The next try uses another name: partial files would keep a full disk full.
        with suppress(OSError):
            partial.unlink()
        raise


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.utime(path)
        return
    except FileNotFoundError:
        pass
    replace_file(path, data)
    # The new entries of both directories must be durable too.
    for directory in (path.parent, path.parent.parent):
        sync(directory)


def _written_at(files: Any, path: str) -> int:
    """Return when an object was written; 0 where its store does not record that."""
    try:
        return int(files.modified(path).timestamp() * SECOND)
    except NotImplementedError:
        return 0


def files_of(address: str, options: Options | None = None) -> tuple[Any, str]:
    """Return the driver of a URL and the path in it; some drivers connect to the store here."""
    files, path = _fsspec_core().url_to_fs(address, **(options or {}))
    return files, path


def make_directory_of(address: str, files: Any, path: str) -> None:
    """Make the directory that an object is written to, in stores that have directories.

    Drivers of object stores would create a bucket that is missing: its name may be mistyped.
    """
    schemes = {link.partition("://")[0] for link in address.split("::")}
    if schemes.isdisjoint(_BUCKET_SCHEMES):
        files.makedirs(files._parent(path), exist_ok=True)


def _check_driver(address: str, options: Options) -> None:
    """Raise the problem of a URL and its options, as far as that can be checked offline."""
    import inspect

    core = _fsspec_core()
    links = address.split("::")
    for link in links:
        # In `simplecache::s3://bucket` the first link is a protocol alone.
        driver = core.get_filesystem_class(core.split_protocol(link)[0] or link)
        if len(links) == 1:
            from_url = driver._get_kwargs_from_urls(address)
            from_address = {
                name: value for name, value in from_url.items() if options.get(name) != value
            }
            inspect.signature(driver.__init__).bind(None, **from_address, **options)


def _fsspec_core() -> Any:
    try:
        from fsspec import core
    except ImportError:
        raise ImportError(
            "artifacts at a URL need a library: python -m pip install fsspec"
        ) from None
    return core
