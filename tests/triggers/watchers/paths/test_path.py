"""The source `path`: which files count, when, and what is never taken for a deletion."""

import asyncio
import errno
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.triggers.watchers.paths import path as path_source
from agent.triggers.watchers.paths import path_scan, path_snapshot
from agent.triggers.watchers.paths.path_snapshot import Entry, Rules, observe
from agent.triggers.watchers.source import SourceError
from tests.support.attempt import HandClock
from tests.support.file_polls import AN_HOUR, Watching

ALL = ["created", "changed", "deleted"]
QUIET = 30.0


def watching(path: Path | str, **keys: Any) -> Watching:
    """Return a watcher of a path, whose files count after half a minute."""
    keys = {"path": str(path), "events": ALL, "quiet_seconds": QUIET, **keys}
    return Watching({"path": keys})


def events(found: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return what happened to which files."""
    return [(item["event"], item["name"]) for item in found]


def settle(watcher: Watching) -> list[tuple[str, str]]:
    """Poll, let the quiet time pass, and return the events of both polls."""
    first = events(watcher.poll())
    watcher.clock.advance(QUIET + 1)
    return first + events(watcher.poll())


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Return a directory that every user may enter."""
    made = Path(tempfile.mkdtemp(prefix="agent-path-"))
    made.chmod(0o755)
    yield made
    for path in [made, *made.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    shutil.rmtree(made)


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Give up the rights of root for a while: root may read every directory."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_the_first_poll_returns_every_file_oldest_first(tmp_path: Path) -> None:
    """With its absolute path, name, size and time of modification; the caller records the baseline."""
    for number, name in enumerate(["b.txt", "a.txt"]):
        (tmp_path / name).write_text("x" * number)
        os.utime(tmp_path / name, (1_000_000 + number, 1_000_000 + number))
    watcher = watching(tmp_path)
    assert watcher.poll() == [
        {
            "path": str(tmp_path / name),
            "name": name,
            "event": "created",
            "size": size,
            "modified": f"1970-01-12T13:46:4{size}.000Z",
        }
        for size, name in enumerate(["b.txt", "a.txt"])
    ]
    assert watcher.poll() == [] and watcher.last.next_seconds is None


def test_changes_are_reported_once_with_keys_of_their_own(tmp_path: Path) -> None:
    """Created, changed, changed again and deleted: four items, four keys."""
    watcher = watching(tmp_path)
    assert watcher.poll() == []
    file, keys = tmp_path / "a.txt", set()
    actions: list[tuple[Callable[[], object], str]] = [
        (lambda: file.write_text("one"), "created"),
        (lambda: file.write_text("two!"), "changed"),
        (lambda: file.write_text("three"), "changed"),
        (file.unlink, "deleted"),
    ]
    for action, expected in actions:
        action()
        assert settle(watcher) == [(expected, "a.txt")]
        keys.update(watcher.keys)
        assert watcher.poll() == []
    assert len(keys) == 4


def test_only_the_events_that_are_asked_for_are_returned(tmp_path: Path) -> None:
    """The others still count: a file is not created again by its next change."""
    watcher = watching(tmp_path, events=["changed"])
    watcher.poll()
    (tmp_path / "a.txt").write_text("one")
    assert settle(watcher) == []
    (tmp_path / "a.txt").write_text("more")
    assert settle(watcher) == [("changed", "a.txt")]


def test_a_file_that_keeps_growing_does_not_count_until_it_is_quiet(tmp_path: Path) -> None:
    """However long it takes; each poll asks for another one when the file could be quiet."""
    watcher = watching(tmp_path)
    watcher.poll()
    file = tmp_path / "download.iso"
    file.write_bytes(b"")
    for _ in range(5):
        assert watcher.poll() == []
        assert watcher.last.next_seconds is not None
        assert QUIET - 1 < watcher.last.next_seconds <= QUIET
        watcher.clock.advance(QUIET + 1)
        with file.open("ab") as stream:
            stream.write(b"more")
    assert settle(watcher) == [("created", "download.iso")]
    assert watcher.last.items[0].data["size"] == 20


def test_old_times_do_not_make_a_file_quiet(tmp_path: Path) -> None:
    """Programs set times of modification, so only what the polls saw counts."""
    watcher = watching(tmp_path)
    watcher.poll()
    file = tmp_path / "copy.bin"
    for size in range(3):
        file.write_bytes(b"x" * size)
        os.utime(file, (1_000_000, 1_000_000))
        assert watcher.poll() == []
        watcher.clock.advance(QUIET + 1)
    assert events(watcher.poll()) == [("created", "copy.bin")]


def test_a_clock_that_is_set_back_delays_a_file_by_the_quiet_time_only(tmp_path: Path) -> None:
    """What was seen in the future counts as seen now."""
    watcher = watching(tmp_path)
    watcher.poll()
    (tmp_path / "a.txt").write_text("one")
    assert watcher.poll() == []
    watcher.clock.advance(-AN_HOUR)
    assert watcher.poll() == []
    watcher.clock.advance(QUIET + 1)
    assert events(watcher.poll()) == [("created", "a.txt")]


def test_a_file_that_is_replaced_for_a_moment_is_changed_and_not_deleted(tmp_path: Path) -> None:
    """Editors remove a file and write it again; one that never counted leaves no trace."""
    file = tmp_path / "a.txt"
    file.write_text("one")
    watcher = watching(tmp_path)
    watcher.poll()
    file.unlink()
    (tmp_path / "passing.tmp").write_text("")
    assert watcher.poll() == []
    (tmp_path / "passing.tmp").unlink()
    file.write_text("other")
    assert settle(watcher) == [("changed", "a.txt")]


def test_a_rename_is_a_deletion_and_a_creation(tmp_path: Path) -> None:
    """Only the path tells that two files are the same."""
    (tmp_path / "old.txt").write_text("one")
    watcher = watching(tmp_path)
    watcher.poll()
    (tmp_path / "old.txt").rename(tmp_path / "new.txt")
    assert sorted(settle(watcher)) == [("created", "new.txt"), ("deleted", "old.txt")]


def test_a_first_poll_waits_for_recent_files_and_leaves_out_those_that_change(
    tmp_path: Path,
) -> None:
    """A file that is complete is part of the baseline; one that is being written comes later."""
    (tmp_path / "complete.txt").write_text("one")
    growing = tmp_path / "growing.txt"
    growing.write_text("")
    watcher = watching(tmp_path, quiet_seconds=0.3)
    watcher.clock.skew_us = 0
    stop = threading.Event()

    def grow() -> None:
        while not stop.wait(0.01):
            with growing.open("a") as stream:
                stream.write("more")

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        assert events(watcher.poll()) == [("created", "complete.txt")]
    finally:
        stop.set()
        writer.join()
    watcher.poll()
    watcher.clock.advance(1)
    assert events(watcher.poll()) == [("created", "growing.txt")]


def test_a_first_poll_waits_by_itself_and_not_by_the_clock(tmp_path: Path) -> None:
    """Whatever the clock shows then, what was unchanged for the quiet time counts."""

    class StillClock(HandClock):
        def now(self) -> int:
            return 1_000_000

    (tmp_path / "a.txt").write_text("one")
    watcher = watching(tmp_path, quiet_seconds=0.1)
    watcher.clock = StillClock()
    assert events(watcher.poll()) == [("created", "a.txt")]


def test_a_first_poll_does_not_wait_for_a_long_quiet_time(tmp_path: Path) -> None:
    """What was modified just now comes once that time has passed."""
    (tmp_path / "a.txt").write_text("one")
    watcher = watching(tmp_path, quiet_seconds=600.0)
    watcher.clock.skew_us = 0
    assert watcher.poll() == []
    watcher.clock.advance(601)
    assert events(watcher.poll()) == [("created", "a.txt")]


def test_without_a_quiet_time_files_count_at_once(tmp_path: Path) -> None:
    """`quiet: 0s` is for files that are only ever moved into the directory."""
    watcher = watching(tmp_path, quiet_seconds=0.0)
    watcher.poll()
    (tmp_path / "a.txt").write_text("one")
    assert events(watcher.poll()) == [("created", "a.txt")]


def test_match_and_recursive_choose_the_files(tmp_path: Path) -> None:
    """By name; without `recursive` only those directly in the directory."""
    (tmp_path / "deep" / "er").mkdir(parents=True)
    for name in ["a.pdf", "a.txt", "deep/b.pdf", "deep/er/c.pdf"]:
        (tmp_path / name).write_text("x")
    assert events(watching(tmp_path, match="*.pdf").poll()) == [("created", "a.pdf")]
    both = watching(tmp_path, match=["*.pdf", "a.t?t"]).poll()
    assert sorted(events(both)) == [("created", "a.pdf"), ("created", "a.txt")]
    names = {item["path"] for item in watching(tmp_path, match="*.pdf", recursive=True).poll()}
    assert names == {str(tmp_path / n) for n in ["a.pdf", "deep/b.pdf", "deep/er/c.pdf"]}


def test_links_and_special_files_are_ignored(tmp_path: Path) -> None:
    """A link could lead to any file of this machine; a pipe would block its reader."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("x")
    watched = tmp_path / "watched"
    watched.mkdir()
    (watched / "link.txt").symlink_to(outside / "secret.txt")
    (watched / "linked").symlink_to(outside)
    (watched / "loop").symlink_to(watched)
    os.mkfifo(watched / "pipe")
    (watched / "plain.txt").write_text("x")
    assert events(watching(watched, recursive=True).poll()) == [("created", "plain.txt")]
    # The path itself may be a link.
    (tmp_path / "way").symlink_to(watched)
    assert events(watching(tmp_path / "way").poll()) == [("created", "plain.txt")]


def test_a_single_file_can_be_watched(tmp_path: Path) -> None:
    """Also through its deletion and return; without its directory nothing is known."""
    file = tmp_path / "dir" / "report.pdf"
    file.parent.mkdir()
    file.write_text("one")
    watcher = watching(file)
    assert events(watcher.poll()) == [("created", "report.pdf")]
    file.unlink()
    assert settle(watcher) == [("deleted", "report.pdf")]
    assert watcher.last.items[0].data["path"] == str(file)
    file.write_text("two")
    assert settle(watcher) == [("created", "report.pdf")]
    shutil.rmtree(file.parent)
    with pytest.raises(SourceError, match="cannot be read"):
        watcher.poll()


def test_names_that_are_not_utf8_are_escaped(tmp_path: Path) -> None:
    """Two names that would look the same stay two files."""
    odd = os.fsencode(tmp_path) + b"/caf\xe9.txt"
    Path(os.fsdecode(odd)).touch()
    (tmp_path / "caf\\xe9.txt").write_text("")
    watcher = watching(tmp_path)
    assert [item["name"] for item in watcher.poll()] == ["caf\\xe9.txt"] * 2
    assert len(set(watcher.keys)) == 2
    assert watcher.poll() == []
    Path(os.fsdecode(odd)).unlink()
    assert settle(watcher) == [("deleted", "caf\\xe9.txt")]


def test_long_paths_have_hashed_keys(tmp_path: Path) -> None:
    """A key is never longer than its column."""
    deep = tmp_path.joinpath(*["d" * 100] * 6)
    deep.mkdir(parents=True)
    (deep / "a.txt").write_text("x")
    watcher = watching(tmp_path, recursive=True)
    watcher.poll()
    assert watcher.keys[0].startswith("sha256:")


def test_paths_start_at_the_workflow_file_or_at_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Never at the directory where the daemon was started."""
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "a.txt").write_text("x")
    watcher = watching("inbox")
    watcher.workflow_path = tmp_path / "workflow.yaml"
    assert [item["path"] for item in watcher.poll()] == [str(tmp_path / "inbox" / "a.txt")]
    monkeypatch.setenv("HOME", str(tmp_path))
    assert events(watching("~/inbox").poll()) == [("created", "a.txt")]
    with pytest.raises(SourceError, match="nosuchuser"):
        watching("~nosuchuser/inbox").poll()


def test_a_directory_that_is_gone_is_an_error(tmp_path: Path) -> None:
    """Its files may be on a disk that is not mounted; afterwards nothing counts as new."""
    watched = tmp_path / "watched"
    watched.mkdir()
    (watched / "a.txt").write_text("x")
    watcher = watching(watched)
    watcher.poll()
    before = watcher.cursor
    watched.rename(tmp_path / "away")
    with pytest.raises(SourceError, match="is gone"):
        watcher.poll()
    assert watcher.cursor == before
    (tmp_path / "away").rename(watched)
    assert settle(watcher) == []


def test_a_directory_that_goes_during_the_scan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One below takes its files with it; without the root nothing is known."""
    (tmp_path / "sub").mkdir()
    for name in ["a.txt", "sub/b.txt"]:
        (tmp_path / name).write_text("x")
    gone, scandir = tmp_path / "sub", os.scandir

    def scan(directory: str) -> Any:
        if directory == str(gone):
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", directory)
        return scandir(directory)

    monkeypatch.setattr(os, "scandir", scan)
    assert events(watching(tmp_path, recursive=True).poll()) == [("created", "a.txt")]
    gone = tmp_path
    with pytest.raises(SourceError, match="cannot be read: No such file"):
        watching(tmp_path, recursive=True).poll()


def test_a_first_poll_of_nothing_is_an_error(tmp_path: Path) -> None:
    """Else a typing error in the path would go unnoticed for ever."""
    with pytest.raises(SourceError, match="there is no file or directory"):
        watching(tmp_path / "inbxo").poll()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="neither a file nor a directory"):
        watching(tmp_path / "pipe").poll()


def test_another_file_system_without_the_known_files_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mount point of an unmounted file system is an empty directory on another device."""
    (tmp_path / "a.txt").write_text("x")
    watcher = watching(tmp_path)
    watcher.poll()
    watcher.cursor = {**watcher.cursor, "device": watcher.cursor["device"] + 1}
    # The same files under other inodes and another device: it was mounted again.
    (tmp_path / "b.txt").write_bytes((tmp_path / "a.txt").read_bytes())
    shutil.copystat(tmp_path / "a.txt", tmp_path / "b.txt")
    (tmp_path / "b.txt").rename(tmp_path / "a.txt")
    mounted = watcher.cursor
    assert settle(watcher) == []
    watcher.cursor = mounted
    (tmp_path / "a.txt").unlink()
    with pytest.raises(SourceError, match="is it mounted"):
        watcher.poll()


def test_another_inode_alone_is_a_change_unless_the_watcher_polls(tmp_path: Path) -> None:
    """`poll: true` is for network file systems, which may number their files at will."""
    file = tmp_path / "a.txt"
    for is_polled in (False, True):
        file.write_text("one")
        watcher = watching(tmp_path, poll=is_polled)
        watcher.poll()
        shutil.copy2(file, tmp_path / ".other")
        (tmp_path / ".other").rename(file)
        assert settle(watcher) == ([] if is_polled else [("changed", "a.txt")])


@pytest.mark.parametrize("below", ["", "sub"])
def test_a_directory_that_cannot_be_read_is_an_error(
    open_directory: Path, ordinary_user: None, below: str
) -> None:
    """Also one below: its files are not deleted."""
    euid = os.geteuid()
    os.seteuid(os.getuid())
    closed = open_directory / "watched" / below
    closed.mkdir(parents=True)
    (closed / "a.txt").write_text("x")
    watcher = watching(open_directory / "watched", recursive=True)
    os.seteuid(euid)
    assert events(watcher.poll()) == [("created", "a.txt")]
    before = watcher.cursor
    for mode in (0o000, 0o444):
        os.seteuid(os.getuid())
        closed.chmod(mode)
        os.seteuid(euid)
        with pytest.raises(SourceError, match="cannot be read: Permission denied"):
            watcher.poll()
        assert watcher.cursor == before
    os.seteuid(os.getuid())
    closed.chmod(0o755)
    os.seteuid(euid)
    assert settle(watcher) == []


def test_other_files_by_other_keys_are_a_new_baseline(tmp_path: Path) -> None:
    """A pattern that is widened does not start a task for every file that was there."""
    for name in ["a.pdf", "a.txt"]:
        (tmp_path / name).write_text("x")
    watcher = watching(tmp_path, match="*.pdf")
    watcher.poll()
    watcher.spec["path"]["match"] = "*"
    watcher.poll()
    assert watcher.last.new_baseline is not None and len(watcher.last.items) == 2
    watcher.poll()
    assert watcher.last.new_baseline is None


def test_a_poll_without_changes_keeps_its_cursor(tmp_path: Path) -> None:
    """So that nothing has to be written."""
    (tmp_path / "a.txt").write_text("x")
    watcher = watching(tmp_path)
    watcher.poll()
    before = watcher.cursor
    watcher.poll()
    assert watcher.last.cursor is before and watcher.last.is_cursor_kept


def test_too_many_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the directory, and as items of one poll."""
    for number in range(5):
        (tmp_path / f"{number}.txt").write_text("x")
    watcher = watching(tmp_path)
    watcher.most_items = 4
    with pytest.raises(SourceError, match="5 files in one poll"):
        watcher.poll()
    monkeypatch.setattr(path_scan, "MOST_FILES", 4)
    with pytest.raises(SourceError, match="more than 4 files"):
        watching(tmp_path).poll()


def test_a_snapshot_of_fifty_thousand_files_stays_small() -> None:
    """Even with names and numbers that do not compress; and it reads back the same."""
    snapshot = {
        f"projects/client-{number % 200:03d}/{number * 2654435761 % 2**48:012x}-{number}.pdf": Entry(
            (
                number * 2654435761 % 10**8,
                1_700_000_000_000_000_000 + number * 11400714819323198485 % 10**17,
                number * 40503 % 5_000_000,
            )
        )
        for number in range(50_000)
    }
    snapshot["pending"] = Entry((1, 2, 3), None, 4)
    snapshot["new"] = Entry(None, (1, 2, 3), 4)
    text = path_snapshot.encode(snapshot)
    assert len(text) < 2_500_000
    assert path_snapshot.decode(text) == snapshot


def test_a_large_snapshot_is_not_written_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that grows for an hour in a large directory must not fill the disk with snapshots."""
    monkeypatch.setattr(path_source, "_LARGE_BYTES", 10)
    monkeypatch.setattr(path_source, "_BYTES_PER_SECOND", 1)
    watcher = watching(tmp_path, quiet_seconds=0.0)
    watcher.poll()
    (tmp_path / "a.txt").write_text("x")
    pause = len(watcher.cursor["snapshot"])
    assert watcher.poll() == []
    assert watcher.last.next_seconds is not None
    assert 0 < watcher.last.next_seconds <= pause
    watcher.clock.advance(pause)
    assert events(watcher.poll()) == [("created", "a.txt")]
    (tmp_path / "b.txt").write_text("x")
    # A clock that was set back must not silence the watcher.
    watcher.clock.advance(-AN_HOUR)
    assert events(watcher.poll()) == [("created", "b.txt")]


def test_a_snapshot_that_cannot_be_stored_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the way out in the message."""
    monkeypatch.setattr(path_snapshot, "MAX_BYTES", 10)
    with pytest.raises(SourceError, match="narrow"):
        path_snapshot.encode({"a": Entry((1, 2, 3))})


def test_a_state_that_comes_back_within_the_quiet_time_is_no_change() -> None:
    """What counts is compared with what counted before, not with what passed."""
    rules = Rules(quiet_us=10, ignores_inodes=False)
    first = observe({"a": Entry((1, 1, 1))}, {"a": (1, 2, 2)}, 100, 101, rules)
    assert first.next_us == 111 and not first.changes
    second = observe(first.snapshot, {"a": (1, 1, 1)}, 105, 106, rules)
    assert second.snapshot == {"a": Entry((1, 1, 1))} and not second.changes
    third = observe(first.snapshot, {"a": (1, 2, 2)}, 110, 110, rules)
    assert not third.changes
    assert observe(first.snapshot, {"a": (1, 2, 2)}, 111, 111, rules).changes


def test_a_scan_that_hangs_is_not_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead network file system costs one thread, and its watcher fails until it answers."""
    release, count = threading.Event(), 0

    def hang(path: Any, stop: Any) -> Any:
        nonlocal count
        count += 1
        release.wait(20)
        return path_scan.scan(path, stop)

    monkeypatch.setattr(path_source, "scan", hang)
    watcher = watching(tmp_path)

    async def story() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(watcher.poll_once(), 0.05)
        with pytest.raises(SourceError, match="may hang"):
            await watcher.poll_once()
        assert count == 1
        release.set()
        running = next(iter(watcher.resources["path"].values()))
        await asyncio.wait({running})
        await watcher.poll_once()

    asyncio.run(story())
    assert count == 2


def test_two_watchers_of_one_path_poll_at_the_same_time(tmp_path: Path) -> None:
    """Only a scan that outlived its poll stands in the way of others."""
    (tmp_path / "a.txt").write_text("x")
    watcher = watching(tmp_path)

    async def story() -> list[list[dict[str, Any]]]:
        return await asyncio.gather(*(one.poll_once() for one in (watcher, twin)))

    twin = watching(tmp_path)
    twin.resources = watcher.resources
    assert [events(found) for found in asyncio.run(story())] == [[("created", "a.txt")]] * 2


def test_a_cursor_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    """A watcher must not take all files for new because it cannot read its snapshot."""
    watcher = watching(tmp_path)
    watcher.poll()
    watcher.cursor = {**watcher.cursor, "v": 2}
    with pytest.raises(SourceError, match="newer version"):
        watcher.poll()
