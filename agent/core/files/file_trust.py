"""Who can change a file: its owner, those its mode lets write, and those who can replace it.

A program that acts on a file acts for everyone who can change it. As in `sshd`, every directory on
the way counts, because a user who can write to a directory can replace its files. A sticky directory
such as /tmp is the exception: there only the owner of an entry can.
"""

import grp
import os
import pwd
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from agent.core.quick_classes.quick_dataclasses import dataclass, replace

EVERYONE: Final = "*"
ROOT: Final = 0
_MAX_LINKS: Final = 40
"""As many symbolic links as Linux follows in one path."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Users and groups that may change the agent's files, besides this user and root."""

    users: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()
    is_for_everyone: bool = False

    def covers_user(self, user: int) -> bool:
        """Whether files may belong to this user."""
        return self.is_for_everyone or user in (ROOT, os.geteuid()) or user in self.users

    def covers_group(self, group: int) -> bool:
        """Whether the members of this group may write: root's, a private one, a trusted one."""
        return (
            self.is_for_everyone
            or group == ROOT
            or group in self.groups
            or _has_only(group, frozenset({ROOT, os.geteuid()}) | self.users)
        )


def trust_in(users: Iterable[str], groups: Iterable[str]) -> Trust:
    """Return the trust in users and groups by names or numbers; `*` is everyone."""
    named = list(users)
    return Trust(
        frozenset(_user_id(name) for name in named if name != EVERYONE),
        frozenset(_group_id(name) for name in groups),
        EVERYONE in named,
    )


@dataclass(frozen=True, slots=True)
class Weakness:
    """A file or directory that someone who is not trusted can change."""

    path: Path
    problem: str
    remedy: str
    is_owner: bool = False
    """Whether it is the owner who is not trusted; else the mode lets others write."""


def weaknesses(path: Path, trust: Trust) -> Iterator[Weakness]:
    """Find permissions that let untrusted users change or replace a file or directory."""
    if trust.is_for_everyone:
        return
    path = path.absolute()
    for component, status, is_last in _components(path):
        weakness = _weakness(component, status, trust, is_last=is_last)
        if weakness is None:
            continue
        is_linked = not path.is_relative_to(component)
        if is_special(status) or (is_linked and status.st_uid == ROOT):
            # It may belong to the system, where another mode or owner would do harm.
            remedy = f"remove {path}, which leads to it" if is_linked else f"remove {path}"
            weakness = replace(weakness, remedy=remedy)
        yield weakness


def is_special(status: os.stat_result) -> bool:
    """Whether it is a device, a FIFO or a socket."""
    mode = status.st_mode
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode))


def can_be_read_by_others(status: os.stat_result, trust: Trust) -> bool:
    """Whether users who are not trusted may read a file."""
    if trust.is_for_everyone:
        return False
    is_for_group = bool(status.st_mode & stat.S_IRGRP) and not trust.covers_group(status.st_gid)
    return is_for_group or bool(status.st_mode & stat.S_IROTH)


def can_be_written_by_others(status: os.stat_result, trust: Trust) -> bool:
    """Whether the mode lets users write who are not trusted."""
    if trust.is_for_everyone:
        return False
    is_for_group = bool(status.st_mode & stat.S_IWGRP) and not trust.covers_group(status.st_gid)
    return is_for_group or bool(status.st_mode & stat.S_IWOTH)


def user_name(user: int) -> str:
    """Return a user's name, or the number of one that has none."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"number {user}"


def _weakness(
    path: Path, status: os.stat_result, trust: Trust, *, is_last: bool
) -> Weakness | None:
    if not trust.covers_user(status.st_uid):
        owner = user_name(status.st_uid)
        remedy = f"chown {user_name(os.geteuid())} {path}"
        return Weakness(path, f"belongs to user {owner}", remedy, is_owner=True)
    if stat.S_ISLNK(status.st_mode) or not can_be_written_by_others(status, trust):
        return None
    is_sticky = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
    if is_sticky and not is_last:
        return None
    if status.st_mode & stat.S_IWOTH:
        return Weakness(path, "can be written by every user", f"chmod go-w {path}")
    group = _group_name(status.st_gid)
    return Weakness(path, f"can be written by group {group}", f"chmod g-w {path}")


def _components(path: Path) -> Iterator[tuple[Path, os.stat_result, bool]]:
    """Walk to a file as the system does, through every directory and every symbolic link."""
    at = Path("/")
    left = list(path.parts[1:])
    yield at, at.lstat(), not left
    links = 0
    while left:
        part = left.pop(0)
        if part == "..":
            at = at.parent
            continue
        here = at / part
        try:
            status = here.lstat()
        except OSError:
            # This process creates a missing file, with a mode of its own.
            return
        is_link = stat.S_ISLNK(status.st_mode)
        yield here, status, not left and not is_link
        if not is_link:
            at = here
            continue
        links += 1
        if links > _MAX_LINKS:
            return
        target = here.readlink()
        if target.is_absolute():
            at = Path("/")
        left = [part for part in target.parts if part != "/"] + left


@lru_cache(maxsize=256)
def _has_only(group: int, users: frozenset[int]) -> bool:
    """Whether a group has no other members, as the group that many systems give each user."""
    try:
        named = grp.getgrgid(group).gr_mem
    except KeyError:
        # In a container that lists neither this user nor its group, both are this process's own.
        if group == os.getegid() and not _is_listed(os.geteuid()):
            return True
        named = []
    try:
        members = {pwd.getpwnam(name).pw_uid for name in named}
    except KeyError:
        return False
    own = {entry.pw_uid for entry in pwd.getpwall() if entry.pw_gid == group}
    if _is_named_after_us(group):
        # A directory service does not list its users; its group of our name is ours.
        own.add(os.geteuid())
    # A group without any known member may have members that this machine does not list.
    return bool(members | own) and members | own <= users


def _is_named_after_us(group: int) -> bool:
    """Whether this is the group that was made for this user alone: it has the user's name."""
    try:
        entry = pwd.getpwuid(os.geteuid())
        return entry.pw_gid == group and grp.getgrgid(group).gr_name == entry.pw_name
    except KeyError:
        return False


def _is_listed(user: int) -> bool:
    try:
        pwd.getpwuid(user)
    except KeyError:
        return False
    return True


def _user_id(name: str) -> int:
    if name.isdigit():
        return int(name)
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        raise ValueError(f"there is no user {name!r}") from None


def _group_id(name: str) -> int:
    if name.isdigit():
        return int(name)
    try:
        return grp.getgrnam(name).gr_gid
    except KeyError:
        raise ValueError(f"there is no group {name!r}") from None


def _group_name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return f"number {group}"
