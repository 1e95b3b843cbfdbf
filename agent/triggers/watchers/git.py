"""The source `git`: new commits of branches, and new tags, of a local or remote repository.

`git ls-remote` lists the references; nothing is fetched. A branch that moved is one item, however many
commits it got: it has the new commit and the previous one. A branch can move back to an old commit, so
its key has the number of the change. The key of a tag is its name and commit. Without `branches` and
`tags`, the branch that HEAD names is watched. Items of a repository on this machine also have the
subject, author and date of the commit.

The credentials are those that git finds without asking: a credential helper, an SSH key or agent.

The address policy of the `http` step holds for http, https and git. Over http and https the checked addresses are
the ones that git connects to, and redirects are refused, since git would follow them anywhere. Git's own protocol
resolves a checked name again. SSH goes where the configuration of SSH says. Neither knows redirects.
"""

import fnmatch
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore

from agent.core.ids import canonical_json, content_hash
from agent.steps.attempt.secrets import Secrets, references
from agent.steps.http.address_policy import AddressPolicy, AddressRefusedError, allowed_addresses
from agent.steps.process.environment import environment_of_watcher
from agent.steps.types.errors import DefiniteFailure
from agent.triggers.watchers import program
from agent.triggers.watchers.item_checks import bounded_key, for_people, storable
from agent.triggers.watchers.source import Item, Json, Poll, PollContext, Source, SourceError

_PROXIES: Final = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_INHERITED: Final = (
    *("SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR"),
    *_PROXIES,
    *map(str.upper, _PROXIES),
)
"""What git needs besides the basic variables to reach a remote."""
_SETTINGS: Final = {
    "GIT_TERMINAL_PROMPT": "0",
    # Instead of a program that asks a person: this one answers with an empty text.
    "GIT_ASKPASS": "true",
    "SSH_ASKPASS": "true",
    # Others run programs: `ext::sh -c …`.
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_OPTIONAL_LOCKS": "0",
    "LC_ALL": "C",
}
_MOST_BYTES: Final = 33_554_432
_MOST_DESCRIBED: Final = 100
"""The most items of a poll for which the commits of a local repository are read."""
_HEADS: Final = "refs/heads/"
_TAGS: Final = "refs/tags/"
_PEELED: Final = "^{}"
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?\Z")
_HELPER: Final = re.compile(r"[A-Za-z0-9+.-]*::")
_SCP_LIKE: Final = re.compile(r"[^/]+:")
_GUARDED_PORTS: Final = {"http": 80, "https": 443, "git": 9418}
"""Transports that the address policy holds for, with their ports."""
_REDIRECTED: Final = re.compile(r"returned error: 30\d")
_USER: Final = re.compile(r"(?<=://)[^/\s@]*@")


def open_source(keys: dict[str, Any]) -> Source:
    """Return the source of a compiled `git` mapping."""
    return GitSource(keys)


@dataclass(frozen=True, slots=True)
class _Repository:
    """Where a repository is."""

    address: str
    path: str | None
    """On this machine; None for a remote one."""

    @property
    def shown(self) -> str:
        """Its address for people, without a user and a password."""
        return for_people(_USER.sub("", self.address))


@dataclass(slots=True)
class _Refs:
    """What a repository shows: the commits of its branches and tags."""

    head: str | None = None
    """The branch that HEAD names."""
    has_head: bool = False
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Moved:
    """A branch or a tag that names another commit than at the last poll."""

    kind: str
    name: str
    commit: str
    previous: str | None
    key: str


class GitSource:
    """One `git ls-remote` a poll."""

    def __init__(self, keys: dict[str, Any]) -> None:
        self._url: str = keys["url"]
        self._branches: list[str] = list(keys.get("branches") or [])
        self._tags: list[str] = list(keys.get("tags") or [])

    async def poll(self, cursor: Json, context: PollContext) -> Poll:
        """List the references and return those that moved."""
        repository = await _repository(self._url, context.workflow_path)
        selection = content_hash(canonical_json([self._url, self._branches, self._tags]))[:16]
        new_baseline = None
        if cursor is not None and cursor.get("of") != selection:
            cursor, new_baseline = None, "the `url`, `branches` or `tags` of the watcher changed"
        # Numbers of changes begin at the time: a cursor that is lost must not use some again.
        before: dict[str, Json] = cursor or {
            "changes": context.clock.now(),
            "head": None,
            "branches": {},
            "tags": {},
        }
        refs = await _list(repository, bool(self._tags), context)
        if before["branches"] and not refs.branches:
            raise SourceError(f"{repository.shown} has no branches any more: is it complete?")
        head = refs.head or before["head"]
        branches = self._watched(refs, before["branches"], head, repository)
        tags = {name: at for name, at in refs.tags.items() if _matches(name, self._tags)}
        moved = _moved_branches(branches, before, is_first=cursor is None)
        if head != before["head"] and before["head"] is not None and not self._branches:
            # HEAD names another branch: that alone is no new commit.
            moved = [one for one in moved if one.name != head or one.previous is not None]
        moved += _moved_tags(tags, before["tags"])
        if len(moved) > context.most_items:
            raise SourceError(
                f"{len(moved)} references moved in one poll of {repository.shown}; at most"
                f" {context.most_items} are accepted: narrow `branches` or `tags`"
            )
        items = await _items(moved, repository, context)
        after = {
            "of": selection,
            "changes": before["changes"] + (1 if moved else 0),
            "head": head,
            "branches": branches,
            "tags": tags,
        }
        return Poll(items, after, new_baseline, is_cursor_kept=after == cursor)

    def _watched(
        self, refs: _Refs, known: dict[str, str], head: str | None, repository: _Repository
    ) -> dict[str, str]:
        """Return the commits of the branches to watch."""
        if self._branches:
            missing = [
                name
                for name in self._branches
                if not set(name) & set("*?[") and name not in refs.branches
            ]
            # A repository without any branch waits for its first push.
            if missing and refs.branches:
                raise SourceError(f"{repository.shown} has no branch {storable(missing[0])!r}")
            return {n: at for n, at in refs.branches.items() if _matches(n, self._branches)}
        if self._tags:
            return {}
        if refs.has_head and head is None:
            raise SourceError(
                f"HEAD of {repository.shown} names no branch; name the `branches` to watch"
            )
        # What HEAD named before stays as it was known, for when HEAD names it again.
        watched = {name: at for name, at in known.items() if name in refs.branches}
        if head in refs.branches:
            watched[head] = refs.branches[head]
        return watched


async def _repository(url: str, workflow_path: Path | None) -> _Repository:
    """Return where a repository is; relative paths start at the workflow file's directory."""
    try:
        url = await Secrets().read(url, frozenset(references(url)))
    except DefiniteFailure as error:
        raise SourceError(f"url: {error}") from None
    if url.startswith("-") or not url.isprintable():
        raise SourceError("url: expected an address or a path that does not start with `-`")
    if _HELPER.match(url):
        raise SourceError("url: git's transport helpers (`NAME::…`) run programs; they are refused")
    if "://" in url or _SCP_LIKE.match(url):
        return _Repository(url, None)
    path = program.directory_beside(url, workflow_path)
    assert path is not None
    absolute = str(Path(path).absolute())
    return _Repository(absolute, absolute)


async def _list(repository: _Repository, has_tags: bool, context: PollContext) -> _Refs:
    patterns = ["HEAD", f"{_HEADS}*", *([f"{_TAGS}*"] if has_tags else [])]
    # Sorted as versions are, so that the latest tag comes last.
    arguments = ["ls-remote", "--symref", "--sort=version:refname", "--", repository.address]
    options = await _guard(repository, context)
    output = await _run([*options, *arguments, *patterns], repository, context)
    refs = _Refs()
    for line in output.decode("utf-8", "surrogateescape").split("\n"):
        value, _, name = line.partition("\t")
        if value.startswith(f"ref: {_HEADS}") and name == "HEAD":
            refs.head = storable(value.removeprefix(f"ref: {_HEADS}"))
        elif _COMMIT.match(value):
            _add(refs, value, storable(name))
    return refs


async def _guard(repository: _Repository, context: PollContext) -> list[str]:
    """Return the options that keep git at the addresses that the policy allows."""
    try:
        parts = urlsplit(repository.address)
        port = parts.port or _GUARDED_PORTS.get(parts.scheme.lower())
    except ValueError as error:
        raise SourceError(f"url: {error}") from None
    if repository.path is not None or port is None or parts.hostname is None:
        return []
    if parts.scheme.lower() not in _GUARDED_PORTS:
        return []
    options = ["-c", "http.followRedirects=false"]
    try:
        policy = AddressPolicy(context.limits.allow_private)
        addresses = await allowed_addresses(policy, parts.hostname, port)
    except AddressRefusedError as error:
        raise SourceError(f"{repository.shown}: {error}") from None
    except httpcore.ConnectError:
        # A proxy may know the name; else git says the same.
        return options
    if ":" in parts.hostname:
        # An address of IPv6, which git takes for no name.
        return options
    shown = ",".join(f"[{one}]" if one.version == 6 else str(one) for one in addresses)
    # Versions of git before 2.37 do not know it, and resolve the name again.
    return [*options, "-c", f"http.curloptResolve={parts.hostname}:{port}:{shown}"]


def _add(refs: _Refs, commit: str, name: str) -> None:
    if name == "HEAD":
        refs.has_head = True
    elif name.startswith(_HEADS):
        refs.branches[name.removeprefix(_HEADS)] = commit
    elif name.startswith(_TAGS):
        # An annotated tag is listed twice: the tag itself, and peeled, which is the commit.
        tag = name.removeprefix(_TAGS)
        if tag.endswith(_PEELED):
            refs.tags[tag.removesuffix(_PEELED)] = commit
        else:
            refs.tags.setdefault(tag, commit)


def _matches(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


def _moved_branches(
    now: dict[str, str], before: dict[str, Json], *, is_first: bool
) -> list[_Moved]:
    known: dict[str, str] = before["branches"]
    number = 0 if is_first else before["changes"]
    moved: list[_Moved] = []
    for name, commit in now.items():
        if known.get(name) != commit:
            key = bounded_key(f"branch:{name}:{number}:{commit}")
            moved.append(_Moved("branch", name, commit, known.get(name), key))
    return moved


def _moved_tags(now: dict[str, str], known: dict[str, str]) -> list[_Moved]:
    return [
        _Moved("tag", name, commit, known.get(name), bounded_key(f"tag:{name}:{commit}"))
        for name, commit in now.items()
        if known.get(name) != commit
    ]


async def _items(moved: list[_Moved], repository: _Repository, context: PollContext) -> list[Item]:
    described = await _describe(moved, repository, context)
    return [
        Item(
            one.key,
            {
                "url": repository.shown,
                "ref": f"{_HEADS if one.kind == 'branch' else _TAGS}{one.name}",
                one.kind: one.name,
                "commit": one.commit,
                "previous": one.previous,
                **described.get(one.commit, {}),
            },
        )
        for one in moved
    ]


async def _describe(
    moved: list[_Moved], repository: _Repository, context: PollContext
) -> dict[str, dict[str, Json]]:
    """Return the subject, author and date of the commits of a repository on this machine."""
    commits = sorted({one.commit for one in moved[-_MOST_DESCRIBED:]})
    if repository.path is None or not commits:
        return {}
    fields = "%H%x00%s%x00%an <%ae>%x00%aI"
    options = ["--no-walk=unsorted", "--no-color", "--no-patch", "--encoding=UTF-8", "--no-notes"]
    # The repository's own configuration could name a program that verifies signatures.
    command = ["-C", repository.path, "-c", "log.showSignature=false", "--no-pager", "log"]
    try:
        output = await _run(
            [*command, *options, f"--format={fields}", *commits, "--"], repository, context
        )
    except SourceError:
        # Of a tag that names no commit; the items are complete without it.
        return {}
    described: dict[str, dict[str, Json]] = {}
    for line in output.decode("utf-8", "replace").split("\n"):
        commit, *values = line.split("\0")
        if len(values) == 3:
            subject, author, date = (storable(value)[:1000] for value in values)
            described[commit] = {"subject": subject, "author": author, "date": date}
    return described


async def _run(arguments: list[str], repository: _Repository, context: PollContext) -> bytes:
    env = environment_of_watcher(_SETTINGS, (*_INHERITED, *context.limits.inherit))
    git = program.Program(
        name=f"git {'ls-remote' if 'ls-remote' in arguments else 'log'} of {repository.shown}",
        argv=["git", *arguments],
        env=env,
        # Not inside of a repository, whose configuration would count.
        cwd="/",
        most_bytes=_MOST_BYTES,
    )
    try:
        completed = await program.run(git, context)
    except SourceError as error:
        text = _USER.sub("", str(error))
        if _REDIRECTED.search(text):
            text += "\nIt is a redirect, and git would follow it anywhere: write the new address as `url`"
        raise SourceError(text, retry_seconds=error.retry_seconds) from None
    return completed.stdout
