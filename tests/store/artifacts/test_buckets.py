"""An object store whose bucket does not exist: that is an error, and nothing creates the bucket."""

from collections.abc import Iterator
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.registry import _registry

from agent.store.artifacts import objects
from agent.store.artifacts.blobs import BlobStores
from agent.store.db.database import StoreError


class BucketStore(MemoryFileSystem):  # type: ignore[misc]
    """A store with buckets; its driver creates one that is missing wherever directories are made."""

    protocol = "s3"
    cachable = False
    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]
    buckets: ClassVar[set[str]] = set()

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return "/" + path.removeprefix("s3://").strip("/")

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Create the bucket, as drivers of object stores do."""
        self.buckets.add(self._bucket(path))

    def pipe_file(self, path: str, value: bytes, **options: Any) -> None:
        """Write an object to a bucket that exists."""
        if self._bucket(path) not in self.buckets:
            raise FileNotFoundError("The specified bucket does not exist")
        super().pipe_file(path, value, **options)

    def _bucket(self, path: str) -> str:
        return self._strip_protocol(path).strip("/").partition("/")[0]


@pytest.fixture
def buckets() -> Iterator[set[str]]:
    """Let `s3://` be that store; return its buckets."""
    fsspec.register_implementation("s3", BucketStore, clobber=True)
    BucketStore.buckets.clear()
    yield BucketStore.buckets
    _registry.pop("s3", None)


def test_a_bucket_that_does_not_exist_is_an_error(buckets: set[str]) -> None:
    """What `agent doctor` tries, an artifact, and the objects of a job."""
    url = "s3://nowhere/agent"
    with pytest.raises(StoreError, match="bucket does not exist"):
        BlobStores(url).probe(url, 10)
    for write in (objects.write, objects.create):
        with pytest.raises(FileNotFoundError):
            write(f"{url}/jobs/spec.json", b"{}")
    assert buckets == set()


def test_a_bucket_that_exists_is_used(buckets: set[str]) -> None:
    """No directory is made in it."""
    buckets.add("mine")
    BlobStores("s3://mine/agent").probe("s3://mine/agent", 10)
    assert objects.create("s3://mine/agent/begun", b"x")
    assert buckets == {"mine"}
