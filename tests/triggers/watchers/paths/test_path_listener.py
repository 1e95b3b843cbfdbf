"""The listener of `path`: real notifications of the file system, as hints for an early poll."""

import asyncio
import contextlib
import importlib.util
import shutil
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import watchfiles

from agent.triggers.watchers.paths import open_watch, path_listener
from agent.triggers.watchers.paths.path_listener import PathListener
from agent.triggers.watchers.paths.path_scan import Listing, WatchedPath, directories
from agent.triggers.watchers.registry import listener_of
from tests.support.file_polls import Watching

PATIENCE = 20.0


class Listening:
    """A listener in the middle of its work, and whether it has woken its watcher."""

    def __init__(self, path: Path, resources: dict[str, Any] | None = None, **keys: Any) -> None:
        listener = PathListener({"path": str(path), **keys}, apart_seconds=0.05)
        self._woken = asyncio.Event()
        context = Watching({}, resources={} if resources is None else resources).context()
        self._resources = context.resources
        self.task = asyncio.ensure_future(listener.listen(context, self._woken.set))

    async def __aenter__(self) -> "Listening":
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await self.task
        await self._resources["directories"].aclose()

    async def wakes_on(self, change: Callable[[], object]) -> None:
        """Repeat a change until it is noticed: when listening begins is not known outside."""
        self._woken.clear()
        async with asyncio.timeout(PATIENCE):
            while not self._woken.is_set():
                assert not self.task.done()
                change()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._woken.wait(), 0.5)

    async def wakes_on_each(self, directory: Path) -> None:
        """Check that several files wake: the first may be noticed by an earlier change."""
        for number in range(3):
            file = directory / f"{number}.txt"
            await self.wakes_on(lambda file=file: file.write_text("x"))  # type: ignore[misc]


def test_files_that_come_change_and_go_wake_the_watcher(tmp_path: Path) -> None:
    """Each time, by what the system reports of its directory."""

    async def story() -> None:
        async with Listening(tmp_path, match="*.pdf") as listening:
            pdf = tmp_path / "a.pdf"
            await listening.wakes_on(lambda: pdf.write_text("x"))
            await listening.wakes_on(lambda: pdf.write_text("y"))
            await listening.wakes_on(lambda: pdf.unlink(missing_ok=True))

    asyncio.run(story())


def test_only_changes_that_concern_the_watched_files_count(tmp_path: Path) -> None:
    """Not the other names in a directory: the agent's own database may be there."""
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.pdf").write_text("x")

    def concerns(name: str, change: watchfiles.Change, root: Path = tmp_path, **keys: Any) -> bool:
        path = WatchedPath.of({"path": str(root), **keys}, None)
        listed = directories(path, threading.Event())
        return path_listener.concerns(path, listed)(change, str(tmp_path / name))

    modified, deleted = watchfiles.Change.modified, watchfiles.Change.deleted
    assert concerns("a.pdf", modified, match="*.pdf")
    assert not concerns("agent.db", modified, match="*.pdf")
    assert concerns("", deleted, match="*.pdf")
    assert concerns("sub", modified, match="*.pdf", recursive=True)
    assert concerns("gone", deleted, match="*.pdf", recursive=True)
    assert not concerns("sub", modified, match="*.pdf")
    assert not concerns("other.pdf", modified, tmp_path / "a.pdf")
    assert concerns("a.pdf", modified, tmp_path / "a.pdf")
    # Of a path that does not exist, only what may create it.
    assert concerns("new", modified, tmp_path / "new" / "deep")
    assert not concerns("other", modified, tmp_path / "new" / "deep")


def test_links_are_not_listened_to(tmp_path: Path) -> None:
    """The library would follow one to the root of the file system."""
    watched = tmp_path / "watched"
    (watched / "sub").mkdir(parents=True)
    (watched / "link").symlink_to("/")
    path = WatchedPath.of({"path": str(watched), "recursive": True}, None)
    found = directories(path, threading.Event()).directories
    assert set(found) == {str(watched), str(watched / "sub")}


@pytest.mark.skipif(
    not Path("/dev/pts").is_dir() or Path("/dev/pts").stat().st_dev == Path("/dev").stat().st_dev,
    reason="needs a file system that is mounted below another",
)
def test_other_file_systems_below_are_not_entered() -> None:
    """What is unmounted there would look as if it was deleted."""
    path = WatchedPath.of({"path": "/dev", "recursive": True}, None)
    found = directories(path, threading.Event()).directories
    assert "/dev" in found and "/dev/pts" not in found


def test_directories_that_come_and_go_are_followed(tmp_path: Path) -> None:
    """One that does not exist yet, one that is made again, and new ones below."""
    watched = tmp_path / "watched"

    async def story() -> None:
        async with Listening(watched, recursive=True) as listening:
            await asyncio.sleep(0.1)
            await listening.wakes_on(lambda: watched.mkdir(exist_ok=True))
            await listening.wakes_on_each(watched)
            deep = watched / "deep" / "er"
            deep.mkdir(parents=True)
            await listening.wakes_on_each(deep)
            shutil.rmtree(watched)
            await listening.wakes_on(lambda: watched.mkdir(exist_ok=True))
            await listening.wakes_on_each(watched)

    asyncio.run(story())


def test_a_directory_that_comes_back_under_its_inode_is_watched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some file systems give a new directory the inode of a deleted one: its listing looks unchanged."""

    def with_one_inode(*given: Any) -> Listing:
        listed = directories(*given)
        return replace(listed, directories=dict.fromkeys(listed.directories, 1))

    monkeypatch.setattr(path_listener, "directories", with_one_inode)
    inode_of = open_watch.inode_of
    monkeypatch.setattr(open_watch, "inode_of", lambda path: inode_of(path) and 1)
    watched = tmp_path / "watched"
    watched.mkdir()

    def make_again() -> None:
        # At once: a listing in between would see that it is gone.
        watched.rename(tmp_path / "old")
        watched.mkdir()
        shutil.rmtree(tmp_path / "old")

    async def story() -> None:
        async with Listening(watched) as listening:
            await listening.wakes_on_each(watched)
            make_again()
            await listening.wakes_on_each(watched)

    asyncio.run(story())


def test_a_single_file_is_listened_to_through_replacements(tmp_path: Path) -> None:
    """Its directory is what is watched: a replaced file would take the watch with it."""
    file, new = tmp_path / "a.txt", tmp_path / "new"
    file.write_text("x")

    def replace() -> None:
        new.write_text("y")
        new.rename(file)

    async def story() -> None:
        async with Listening(file) as listening:
            for _ in range(2):
                await listening.wakes_on(replace)

    asyncio.run(story())


def test_cancellation_stops_at_once_and_leaves_no_thread(tmp_path: Path) -> None:
    """The library's own thread ends too."""

    def watchers() -> int:
        stacks = map(traceback.extract_stack, sys._current_frames().values())
        return sum(any("open_watch" in frame.filename for frame in stack) for stack in stacks)

    async def story() -> float:
        listening = Listening(tmp_path)
        await listening.wakes_on(lambda: (tmp_path / "a.txt").write_text("x"))
        async with asyncio.timeout(PATIENCE):
            while watchers() != 1:  # noqa: ASYNC110  (a thread sets no event when it begins)
                await asyncio.sleep(0.05)
        loop = asyncio.get_running_loop()
        begun = loop.time()
        listening.task.cancel()
        await asyncio.wait({listening.task}, timeout=PATIENCE)
        assert listening.task.cancelled()
        seconds = loop.time() - begun
        async with asyncio.timeout(PATIENCE):
            while watchers():  # noqa: ASYNC110  (a thread sets no event when it ends)
                await asyncio.sleep(0.05)
        return seconds

    assert asyncio.run(story()) < 1.0


def test_polling_suffices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`poll: true`, and a missing library, mean that nothing listens."""
    spec = {"path": {"path": str(tmp_path)}}
    assert listener_of(spec) is not None
    assert listener_of({"path": {"path": str(tmp_path), "poll": True}}) is None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert listener_of(spec) is None
