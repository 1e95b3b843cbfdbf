"""Where artifacts are kept outside the database: a directory, or an object store by its URL.

The database keeps each artifact's row with the address of its content, so that whoever reads needs
no configuration. Content is written before its row and removed after it.
"""

import os
from pathlib import Path
from typing import Any

from agent.clock import SECOND
from agent.keys import new_id
from agent.store.database import StoreError
from agent.store.dialect import Fault


class Vault:
    """A place for content; a plain path or `file://` needs nothing, other URLs need fsspec.

    One that this machine has no driver for raises `StoreError` here, before anything relies on it.
    """

    def __init__(self, url: str) -> None:
        self._base = url.removeprefix("file://").rstrip("/")
        if "://" in self._base:
            try:
                _files(self._base)
            except Exception as error:
                text = f"artifacts cannot be kept at {self._base}: {error}"
                raise StoreError(Fault.LOST, text) from error

    def write(self, name: str, data: bytes) -> str:
        """Keep content under its name, durably, and return its address."""
        address = f"{self._base}/{name[:2]}/{name}"
        try:
            if "://" in self._base:
                files, path = _files(address)
                files.makedirs(files._parent(path), exist_ok=True)
                files.pipe_file(path, data)
            else:
                _write_file(Path(address), data)
        # Drivers of object stores have errors of their own; none is the fault of the content.
        except Exception as error:
            raise StoreError(
                Fault.FULL, f"an artifact cannot be kept at {address}: {error}"
            ) from error
        return address


def read(address: str) -> bytes | None:
    """Return content by its address; None when there is none."""
    try:
        if "://" in address:
            files, path = _files(address)
            content: bytes = files.cat_file(path)
            return content
        return Path(address).read_bytes()
    except FileNotFoundError as error:
        if "://" not in address and not Path(address).parent.is_dir():
            # Not the file alone: the directory is not mounted, or was moved.
            raise StoreError(
                Fault.LOST, f"the artifact at {address} cannot be read: its directory is not there"
            ) from error
        return None
    except Exception as error:
        raise StoreError(
            Fault.LOST, f"the artifact at {address} cannot be read: {error}"
        ) from error


def remove(address: str, before: int) -> None:
    """Remove content that nobody has written since an instant; what is gone already is no error.

    Whoever wrote it since is about to refer to it, by a row that takes the place of the removed one.
    """
    try:
        if "://" in address:
            files, path = _files(address)
            if _written_at(files, path) < before:
                files.rm_file(path)
        elif Path(address).stat().st_mtime * SECOND < before:
            Path(address).unlink()
    except OSError:
        # What stays behind costs room and nothing else: nothing refers to it any more.
        return


def _write_file(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.utime(path)
        return
    except FileNotFoundError:
        pass
    # Under another name first: a crash in the middle leaves nothing under the right one.
    partial = path.with_name(f".{path.name}.{new_id()}")
    with partial.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
    # Its name, and perhaps its directory's, are entries of directories that can be lost too.
    for directory in (path.parent, path.parent.parent):
        _sync(directory)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _written_at(files: Any, path: str) -> int:
    """Return when an object was written; the beginning of time where its store does not say."""
    try:
        return int(files.modified(path).timestamp() * SECOND)
    except NotImplementedError:
        return 0


def _files(address: str) -> tuple[Any, str]:
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise ImportError(
            "artifacts at a URL need fsspec: install the extra `artifacts`, as in agent[artifacts]"
        ) from None
    files, path = url_to_fs(address)
    return files, path
