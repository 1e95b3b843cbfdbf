"""Objects by their address: in a directory, and through a driver of fsspec."""

import threading
from pathlib import Path

import pytest

from agent.store.artifacts import objects


@pytest.fixture(params=["", "local://"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return an address to write below: a path, and the same by a URL."""
    return f"{request.param}{tmp_path}/store"


def test_an_object_is_created_once(base: str) -> None:
    """The second creation changes nothing and says so."""
    assert objects.create(f"{base}/a/begun", b"first")
    assert not objects.create(f"{base}/a/begun", b"second")
    assert objects.read(f"{base}/a/begun") == b"first"


def test_of_many_that_create_an_object_one_has(tmp_path: Path) -> None:
    """In a directory the system decides, however many try at once."""
    address, created = f"{tmp_path}/deep/begun", []
    start = threading.Barrier(8)

    def create(number: int) -> None:
        start.wait()
        if objects.create(address, str(number).encode()):
            created.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(created) == 1
    assert objects.read(address) == str(created[0]).encode()


def test_objects_are_written_read_listed_and_removed(base: str) -> None:
    """A write replaces; what does not exist is None, or an empty list."""
    assert objects.read(f"{base}/status") is None
    assert objects.names_below(f"{base}/none") == []
    objects.write(f"{base}/status", b"1")
    objects.write(f"{base}/status", b"2")
    objects.write(f"{base}/output", b"3")
    assert objects.read(f"{base}/status") == b"2"
    assert objects.names_below(base) == ["output", "status"]
    objects.remove(f"{base}/output")
    objects.remove(f"{base}/output")
    assert objects.names_below(base) == ["status"]
