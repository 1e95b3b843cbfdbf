"""Content outside the database: durable before its address is returned, never removed while a row refers to it."""

import errno
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from agent.bootstrap import blob_stores_of
from agent.config.models import ArtifactSettings
from agent.config.settings import Settings
from agent.core.clock import SECOND
from agent.store.artifacts import artifact_rows, blobs
from agent.store.artifacts.artifact_rows import GRACE_US
from agent.store.artifacts.blobs import BlobStore, BlobStores
from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault
from tests.support import faulty_store
from tests.support.faulty_store import FaultyStore


def test_content_is_synced_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The content is synced under another name, then the directories of the final one."""
    synced: list[tuple[int, bool]] = []
    sync = os.fsync

    def noticed(descriptor: int) -> None:
        sync(descriptor)
        synced.append((os.fstat(descriptor).st_ino, Path(address).exists()))

    address = str(tmp_path / "kept" / "ab" / "abc")
    monkeypatch.setattr(os, "fsync", noticed)
    assert BlobStore(f"file://{tmp_path}/kept").write("abc", b"content") == address
    assert blobs.read(address) == b"content"
    inodes = [
        Path(path).stat().st_ino for path in (address, tmp_path / "kept/ab", tmp_path / "kept")
    ]
    assert synced == [(inodes[0], False), (inodes[1], True), (inodes[2], True)]
    assert [path.name for path in (tmp_path / "kept/ab").iterdir()] == ["abc"]


@pytest.mark.parametrize("kind", ["directory", "fsspec"])
def test_content_that_is_stored_while_it_is_pruned_is_kept(
    sqlite_database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A new row may come between the removal of the old row and of the file: the file stays."""
    url = str(tmp_path / "kept") if kind == "directory" else f"memory://pruned-{os.getpid()}"
    now = sqlite_database.clock.now()
    remove = blobs.remove
    with sqlite_database.connect("writer") as connection:
        content = b"text " * 1000

        def put(at: int) -> str:
            return artifact_rows.put(connection, artifact_rows.pack(content, BlobStore(url)), at)

        def put_before(address: str, before: int, _options: object) -> None:
            if kind == "directory":
                os.utime(address, (1, 1))
            # The removal runs in a thread of its own, and this connection waits for it.
            put(now)
            remove(address, before)

        monkeypatch.setattr(blobs, "remove", put_before)
        name = put(now - GRACE_US - SECOND)
        assert artifact_rows.prune(connection, now) == 1
        assert artifact_rows.get(connection, name) == content
        monkeypatch.setattr(blobs, "remove", remove)
        later = now + 2 * GRACE_US
        assert artifact_rows.prune(connection, later) == 1
        assert artifact_rows.get(connection, name) is None


@pytest.mark.parametrize("url", ["unheard-of://bucket/path", "s3://bucket/path"])
def test_a_store_without_a_driver_is_refused_at_the_start(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that could store nothing there does not start."""
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(StoreError, match=f"artifacts cannot be kept at {url}: .+") as raised:
        BlobStore(url)
    assert raised.value.fault is Fault.LOST


@pytest.mark.parametrize(
    ("url", "options", "message"),
    [
        ("ftp:///kept", {}, "missing a required argument: 'host'"),
        ("ftp://host:port/kept", {}, "'port'"),
        ("ftp://host/kept", {"host": "other"}, "multiple values for keyword argument 'host'"),
        ("simplecache::unheard-of://bucket", {}, "unheard-of"),
    ],
)
def test_a_wrong_configuration_is_an_error_at_the_start(
    url: str, options: dict[str, Any], message: str
) -> None:
    """The URL and the options are checked against the driver, without a connection."""
    with pytest.raises(StoreError, match=message) as raised:
        BlobStore(url, lambda: options)
    assert raised.value.fault is Fault.LOST


def test_an_unreachable_store_does_not_stop_the_start() -> None:
    """FTP's driver connects in its constructor: a call does that, with its timeout."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"ftp://127.0.0.1:{silent.getsockname()[1]}/kept"
        stores = BlobStores(url, timeout_seconds=0.2)
        began = time.monotonic()
        kept = stores.open(url)
        with pytest.raises(StoreError, match=r"has not answered within 0.2 s"):
            stores.breaker(url).call(kept.connect, stores.timeout_seconds)
        with pytest.raises(StoreError, match=r"has not answered within 0.2 s"):
            BlobStores(url).probe(url, 0.2)
        assert time.monotonic() - began < 20
    for call in (kept.connect, lambda: kept.write("abc", b"content")):
        with pytest.raises(StoreError, match="Connection refused") as raised:
            call()
        assert raised.value.fault is Fault.UNREACHABLE


def test_a_drivers_error_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the driver of an object store raises, the content is sent there again."""

    class NoCredentialsError(Exception):
        pass

    def refuse(*_: object, **__: object) -> None:
        raise NoCredentialsError("no credentials")

    kept = BlobStore("memory://bucket")
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.pipe_file", refuse)
    with pytest.raises(StoreError, match=r"cannot keep .+: no credentials") as raised:
        kept.write("abc", b"content")
    assert raised.value.fault is Fault.UNREACHABLE
    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.cat_file", refuse)
    with pytest.raises(StoreError, match="cannot be read: no credentials"):
        blobs.read("memory://bucket/ab/abc")


def test_a_failed_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is retried while the disk is full, and must not fill the space that becomes free."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    for _ in range(3):
        with pytest.raises(StoreError, match="No space left on device"):
            BlobStore(str(tmp_path / "kept")).write("abc", b"content")
    assert list((tmp_path / "kept/ab").iterdir()) == []


def test_removing_a_missing_file_is_no_error(tmp_path: Path) -> None:
    """Another process may have removed it."""
    blobs.remove(str(tmp_path / "nothing"), 10**18)
    blobs.remove("memory://nothing-of-this-name", 10**18)
    unread: Any = blobs.read(str(tmp_path / "nothing"))
    assert unread is None


def test_options_of_the_configured_store_reach_its_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References are resolved when they are used; their values show in no message."""
    monkeypatch.setenv("STORE_TOKEN", "a-very-secret-token")
    artifacts_settings = ArtifactSettings(
        url="faulty://bucket/kept", options={"token": "env:STORE_TOKEN", "region": "here"}
    )
    stores = blob_stores_of(Settings(base=tmp_path, artifacts=artifacts_settings))
    address = stores.open(stores.url).write("abc", b"content")
    given = FaultyStore.given
    assert (given["token"], given["region"]) == ("a-very-secret-token", "here")
    assert stores.read(address) == b"content"
    assert stores.options("memory://elsewhere") == {}
    with faulty_store.broken("raises"):
        FaultyStore.problem = OSError("refused a-very-secret-token")
        with pytest.raises(StoreError) as raised:
            stores.read(address)
    assert raised.value.message.endswith("cannot be read: refused [redacted]")
    monkeypatch.delenv("STORE_TOKEN")
    with pytest.raises(StoreError, match="STORE_TOKEN is not set"):
        stores.open(stores.url)


def test_a_password_in_the_address_is_not_shown(tmp_path: Path) -> None:
    """Messages and events name the store by its host, and its addresses without the password."""
    given = ArtifactSettings(url="faulty://robot:a%20very-secret-word@bucket/kept")
    stores = blob_stores_of(Settings(base=tmp_path, artifacts=given))
    kept = stores.open(stores.url)
    assert blobs.store_of(stores.url) == "faulty://bucket"
    with faulty_store.broken("raises"), pytest.raises(StoreError) as raised:
        kept.write("abc", b"content")
    assert "very-secret-word" not in raised.value.message
    assert "bucket" in raised.value.message


def test_calls_after_a_hung_one_fail_at_once() -> None:
    """The first call times out, the next ones fail at once; a late answer ends that."""
    stores = BlobStores("faulty://bucket/kept")
    address = stores.open(stores.url).write("abc", b"content")
    with faulty_store.broken("hangs"):
        with pytest.raises(StoreError, match=r"has not answered within 0.1 s") as raised:
            stores.read(address, 0.1)
        assert raised.value.fault is Fault.UNREACHABLE
        calls = FaultyStore.calls
        for _ in range(10):
            with pytest.raises(StoreError):
                stores.read(address, 60)
        assert FaultyStore.calls == calls
    breaker = stores.breaker(address)
    give_up = time.monotonic() + 60
    while breaker.reason is not None and time.monotonic() < give_up:
        time.sleep(0.01)
    assert stores.read(address) == b"content"


def test_a_probe_removes_what_it_wrote(tmp_path: Path) -> None:
    """A store that accepts nothing is an error."""
    stores = BlobStores()
    kept = tmp_path / "kept"
    stores.probe(str(kept), 60)
    assert [path for path in kept.rglob("*") if path.is_file()] == []
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Not a directory"):
        stores.probe(str(tmp_path / "file"), 60)
