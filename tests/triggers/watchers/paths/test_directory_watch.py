"""The watch that all `path` watchers share: one thread, whatever comes, goes or is refused."""

import asyncio
import inspect
import sys
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.core.thread_bridge import UnboundedThreads
from agent.triggers.watchers.paths import directory_watch
from agent.triggers.watchers.paths.directory_watch import DirectoryWatch, Member
from agent.triggers.watchers.paths.open_watch import OpenWatch, WatchRefusedError

PATIENCE = 20.0


def anything(_change: Any, _path: str) -> bool:
    """Accept every change."""
    return True


def inode(path: Path) -> dict[str, int]:
    """Return a directory as a listener gives it."""
    return {str(path): path.stat().st_ino}


def threads() -> int:
    """Return how many threads wait for changes."""
    stacks = map(traceback.extract_stack, sys._current_frames().values())
    return sum(
        any(frame.name == "run" and "open_watch" in frame.filename for frame in stack)
        for stack in stacks
    )


async def one_thread_is_left() -> None:
    """Wait until only the newest watch has a thread."""
    async with asyncio.timeout(PATIENCE):
        while threads() != 1:  # noqa: ASYNC110  (threads set no event when they end)
            await asyncio.sleep(0.05)


async def noticed(event: asyncio.Event) -> None:
    """Wait until a listener is notified."""
    async with asyncio.timeout(PATIENCE):
        await event.wait()
    event.clear()


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Return the number of directories of each watch that is opened."""
    sizes: list[int] = []
    open_watch = OpenWatch.open.__func__  # type: ignore[attr-defined]

    def counted(cls: type[OpenWatch], directories: dict[str, int]) -> OpenWatch:
        watch: OpenWatch = open_watch(cls, directories)
        sizes.append(len(directories))
        return watch

    monkeypatch.setattr(OpenWatch, "open", classmethod(counted))
    yield sizes


def test_many_listeners_share_one_thread_and_each_gets_its_own_changes(
    tmp_path: Path, opened: list[int]
) -> None:
    """A hundred listeners that begin at once open one watch; one more opens another, and ends it."""

    async def story() -> None:
        shared = DirectoryWatch(UnboundedThreads())
        events = [asyncio.Event() for _ in range(100)]
        paths = [tmp_path / str(number) for number in range(100)]
        for path in paths:
            path.mkdir()
        joined = [shared.join(event.set) for event in events]
        members = [each.__enter__() for each in joined]
        await asyncio.gather(
            *(
                shared.watch(member, inode(path), anything)
                for member, path in zip(members, paths, strict=True)
            )
        )
        assert opened == [100] and shared.directories == 100
        (paths[7] / "a.txt").write_text("x")
        await noticed(events[7])
        assert not any(event.is_set() for event in events)
        joined[3].__exit__(None, None, None)
        with shared.join(events[3].set) as member:
            await shared.watch(member, inode(tmp_path), anything)
            (paths[8] / "a.txt").write_text("x")
            (tmp_path / "b.txt").write_text("x")
            await noticed(events[8])
            await noticed(events[3])
            await one_thread_is_left()
        await shared.aclose()

    asyncio.run(story())


def test_changes_while_a_new_watch_replaces_the_old_one_are_noticed(tmp_path: Path) -> None:
    """The new one is open before the old one ends."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()

    async def story() -> None:
        shared = DirectoryWatch(UnboundedThreads())
        changed = asyncio.Event()
        with shared.join(changed.set) as one, shared.join(lambda: None) as other:
            await shared.watch(one, inode(first), anything)
            joining = asyncio.create_task(shared.watch(other, inode(second), anything))
            for number in range(10):
                (first / f"{number}.txt").write_text("x")
                await noticed(changed)
            await joining
        await shared.aclose()

    asyncio.run(story())


def test_a_directory_that_is_gone_is_reported_and_the_others_are_watched(tmp_path: Path) -> None:
    """Its listener lists its directories again; no other listener is disturbed."""
    gone = tmp_path / "gone"
    gone.mkdir()
    known = inode(gone)
    gone.rmdir()

    async def story() -> None:
        shared = DirectoryWatch(UnboundedThreads())
        changed = asyncio.Event()
        with shared.join(changed.set) as one, shared.join(lambda: None) as other:
            answers = await asyncio.gather(
                shared.watch(one, inode(tmp_path), anything),
                shared.watch(other, known, anything),
                return_exceptions=True,
            )
            assert answers[0] is None and isinstance(answers[1], FileNotFoundError)
            (tmp_path / "a.txt").write_text("x")
            await noticed(changed)
        await shared.aclose()

    asyncio.run(story())


class LimitedSystem:
    """A system that watches a limited number of directories."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
        self.most = most
        self.tries = 0
        open_watch = OpenWatch.open.__func__  # type: ignore[attr-defined]

        self.opened: list[OpenWatch] = []

        def limited(cls: type[OpenWatch], directories: dict[str, int]) -> OpenWatch:
            self.tries += 1
            # As the system does: what is open counts, also that of the watch which is replaced.
            in_use = [
                each
                for each in self.opened
                if inspect.getgeneratorstate(each.changes) != inspect.GEN_CLOSED
            ]
            if len(directories) + sum(len(each.directories) for each in in_use) > self.most:
                raise OSError("OS file watch limit reached.")
            watch: OpenWatch = open_watch(cls, directories)
            self.opened.append(watch)
            return watch

        monkeypatch.setattr(OpenWatch, "open", classmethod(limited))


def test_what_the_system_refuses_is_named_and_the_first_listeners_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later listener is refused without another try, until the refusal is old."""
    system = LimitedSystem(monkeypatch, 3)
    paths = [tmp_path / str(number) for number in range(6)]
    for path in paths:
        path.mkdir()

    async def watch(shared: DirectoryWatch, member: Member, path: Path) -> str | None:
        try:
            await shared.watch(member, inode(path), anything)
        except WatchRefusedError as error:
            return str(error)
        return None

    async def story() -> None:
        shared = DirectoryWatch(UnboundedThreads())
        changed = asyncio.Event()
        joined = [shared.join(changed.set) for _ in paths]
        pairs = [(each.__enter__(), path) for each, path in zip(joined, paths, strict=True)]
        answers = await asyncio.gather(*(watch(shared, *pair) for pair in pairs[:5]))
        assert answers[:3] == [None] * 3
        assert all(answer and "fs.inotify.max_user_watches" in answer for answer in answers[3:])
        (paths[2] / "a.txt").write_text("x")
        await noticed(changed)
        tries = system.tries
        assert await watch(shared, *pairs[5]) == answers[4]
        assert system.tries == tries
        system.most = 6
        monkeypatch.setattr(directory_watch, "_REFUSED_SECONDS", 0.0)
        assert await watch(shared, *pairs[5]) is None
        assert shared.directories == 6
        await shared.aclose()

    asyncio.run(story())


def test_a_system_that_watches_nothing_refuses_every_listener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when all inotify instances of the user are taken."""
    LimitedSystem(monkeypatch, 0)

    async def story() -> None:
        shared = DirectoryWatch(UnboundedThreads())
        with shared.join(lambda: None) as member, pytest.raises(WatchRefusedError):
            await shared.watch(member, inode(tmp_path), anything)
        await shared.aclose()

    asyncio.run(story())


def test_a_directory_that_was_replaced_without_a_notice_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory above it was renamed: the watch stays with the old one."""
    monkeypatch.setattr(directory_watch, "_COMPARE_SECONDS", 0.1)
    above = tmp_path / "above"
    (above / "watched").mkdir(parents=True)

    async def story() -> None:
        shared = DirectoryWatch(UnboundedThreads())
        changed = asyncio.Event()
        with shared.join(changed.set) as member:
            await shared.watch(member, inode(above / "watched"), anything)
            above.rename(tmp_path / "away")
            (above / "watched").mkdir(parents=True)
            await noticed(changed)
        await shared.aclose()

    asyncio.run(story())
    assert threading.active_count() < 50
