"""Objects by their address, in a directory or an object store: written, read, and created once.

Artifacts are content under its hash (`blobs`). These objects have names that processes agree on, and
change: the status of a job, for example. Functions block; callers bound them in time.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from agent.core.files.file_sync import sync
from agent.store.artifacts.blobs import (
    Options,
    files_of,
    make_directory_of,
    replace_file,
    store_of,
)
from agent.store.db.database import StoreError
from agent.store.db.dialect import Fault


def check(base: str, options: Options | None = None) -> None:
    """Raise `StoreError` where the store of some objects does not answer."""
    try:
        if "://" in base:
            read(f"{base}/is-it-there", options)
    except Exception as error:
        # Drivers raise errors of their own.
        text = f"the store {store_of(base)} does not answer: {error or type(error).__name__}"
        raise StoreError(Fault.UNREACHABLE, text) from None


def create(address: str, data: bytes, options: Options | None = None) -> bool:
    """Create an object that must not exist; return whether this call has created it.

    Drivers of S3 and Google Cloud Storage decide it in one request. The read afterwards also catches
    most races of drivers that only check first.
    """
    if "://" not in address:
        return _create_file(Path(address), data)
    files, path = files_of(address, options)
    make_directory_of(address, files, path)
    try:
        files.pipe_file(path, data, mode="create")
    except FileExistsError:
        return False
    created: bool = read(address, options) == data
    return created


def _create_file(path: Path, data: bytes) -> bool:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    sync(path.parent)
    return True


def write(address: str, data: bytes, options: Options | None = None) -> None:
    """Write an object, or replace it: readers see the old content or the new one."""
    if "://" in address:
        files, path = files_of(address, options)
        make_directory_of(address, files, path)
        files.pipe_file(path, data)
        return
    target = Path(address)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(target, data)
    sync(target.parent)


def read(address: str, options: Options | None = None) -> bytes | None:
    """Return an object's content; None if it does not exist."""
    try:
        if "://" not in address:
            return Path(address).read_bytes()
        files, path = files_of(address, options)
        # A driver may cache its earlier list.
        files.invalidate_cache()
        content: bytes = files.cat_file(path)
        return content
    except FileNotFoundError:
        return None


def names_below(address: str, options: Options | None = None) -> list[str]:
    """Return the names directly below an address, in their order."""
    try:
        if "://" not in address:
            return sorted(os.listdir(address))  # noqa: PTH208 - names, not paths
        files, path = files_of(address, options)
        files.invalidate_cache()
        return sorted(name.rstrip("/").rpartition("/")[2] for name in files.ls(path, detail=False))
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_below(address: str, options: Options | None = None) -> None:
    """Remove everything below an address, and the directory above it if that is empty then."""
    if "://" not in address:
        shutil.rmtree(address, ignore_errors=True)
        with suppress(OSError):
            Path(address).parent.rmdir()
        return
    files, path = files_of(address, options)
    files.invalidate_cache()
    with suppress(FileNotFoundError):
        files.rm(path, recursive=True)


def remove(address: str, options: Options | None = None) -> None:
    """Remove an object; one that does not exist is no error."""
    with suppress(FileNotFoundError):
        if "://" not in address:
            Path(address).unlink()
        else:
            files, path = files_of(address, options)
            files.rm_file(path)
