"""The source `git`: what moved in a real repository, and what git is never allowed to do."""

import asyncio
import os
import subprocess
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from agent.steps.http.address_policy import Address, AddressPolicy
from agent.steps.process import processes
from agent.triggers.watchers import git
from agent.triggers.watchers.source import SourceError
from tests.support.file_polls import Watching
from tests.support.http_server import Server, answer, serving
from tests.support.watching import LOOPBACK

DATE = "2026-01-02T03:04:05+00:00"
AUTHOR = "A Person <person@example.com>"


@pytest.fixture(autouse=True)
def own_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give git a home of its own: neither the machine's configuration nor its user counts."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".gitconfig").write_text("[init]\n\tdefaultBranch = main\n[user]\n\tname = A Person\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")


class Repository:
    """A bare repository, and a clone that pushes to it."""

    def __init__(self, directory: Path) -> None:
        self.bare = directory / "bare.git"
        self.clone = directory / "clone"
        self.git("init", "-q", "--bare", str(self.bare), cwd=directory)
        self.git("clone", "-q", str(self.bare), str(self.clone), cwd=directory)

    def git(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run git in the clone."""
        env = {**os.environ, "GIT_AUTHOR_DATE": DATE, "GIT_COMMITTER_DATE": DATE}
        env |= {"GIT_AUTHOR_EMAIL": "person@example.com", "GIT_COMMITTER_EMAIL": "p@example.com"}
        ran = subprocess.run(
            ["git", *arguments], cwd=cwd or self.clone, env=env, check=True, capture_output=True
        )
        return ran.stdout.decode().strip()

    def commit(self, subject: str, branch: str = "main") -> str:
        """Push an empty commit and return it."""
        self.git("checkout", "-q", "-B", branch)
        self.git("commit", "-q", "--allow-empty", "-m", subject)
        self.git("push", "-q", "-f", "origin", branch)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """Return an empty repository."""
    return Repository(tmp_path)


def watching(url: Path | str, **keys: Any) -> Watching:
    """Return a watcher of a repository."""
    return Watching({"git": {"url": str(url), "branches": [], "tags": [], **keys}})


def moved(found: list[dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    """Return the references of items, with their commits and the ones before."""
    return [(item["ref"], item["commit"], item["previous"]) for item in found]


def test_every_push_to_the_head_branch_is_an_item(repository: Repository) -> None:
    """With the commit before; other branches are not watched by themselves."""
    first = repository.commit("first")
    watcher = watching(repository.bare)
    assert moved(watcher.poll()) == [("refs/heads/main", first, None)]
    assert watcher.poll() == []
    second = repository.commit("second")
    assert watcher.poll() == [
        {
            "url": str(repository.bare),
            "ref": "refs/heads/main",
            "branch": "main",
            "commit": second,
            "previous": first,
            "subject": "second",
            "author": AUTHOR,
            "date": DATE,
        }
    ]
    repository.commit("other", "feature")
    assert watcher.poll() == []


def test_a_remote_shows_references_only(repository: Repository) -> None:
    """Over a transport, nothing is known of the commit itself."""
    first = repository.commit("first")
    (item,) = watching(f"file://{repository.bare}").poll()
    assert item == {
        "url": f"file://{repository.bare}",
        "ref": "refs/heads/main",
        "branch": "main",
        "commit": first,
        "previous": None,
    }


def test_a_force_push_back_to_an_old_commit_is_an_item_each_time(repository: Repository) -> None:
    """The same commits alternate, and no key occurs twice."""
    commits = [repository.commit("first"), repository.commit("second")]
    watcher = watching(repository.bare)
    watcher.poll()
    keys = list(watcher.keys)
    for commit in [commits[0], commits[1], commits[0], commits[1]]:
        repository.git("push", "-q", "-f", "origin", f"{commit}:main")
        assert [at for _, at, _ in moved(watcher.poll())] == [commit]
        keys += watcher.keys
    assert len(set(keys)) == 5


def test_after_a_lost_cursor_no_number_is_used_again(repository: Repository) -> None:
    """An edit of the watcher forgets the cursor: the same change must still count."""
    first, second = repository.commit("first"), repository.commit("second")
    watcher = watching(repository.bare)
    keys: list[str] = []
    for _ in range(2):
        watcher.cursor = None
        for commit in (first, second):
            repository.git("push", "-q", "-f", "origin", f"{commit}:main")
            watcher.poll()
            keys += watcher.keys
    # What a first poll shows is the same item.
    assert keys[0] == keys[2] and keys[1] != keys[3]


def test_branches_are_chosen_by_pattern(repository: Repository) -> None:
    """A new branch is an item; one that is removed is none, until it comes back."""
    repository.commit("first")
    watcher = watching(repository.bare, branches=["main", "release/*"])
    watcher.poll()
    release = repository.commit("release", "release/1")
    repository.commit("feature", "feature")
    assert moved(watcher.poll()) == [("refs/heads/release/1", release, None)]
    keys = set(watcher.keys)
    repository.git("push", "-q", "origin", ":release/1")
    assert watcher.poll() == []
    repository.git("push", "-q", "origin", "release/1")
    assert moved(watcher.poll()) == [("refs/heads/release/1", release, None)]
    assert keys.isdisjoint(watcher.keys)


def test_tags_are_chosen_by_pattern_and_ordered_as_versions(repository: Repository) -> None:
    """The commit of an annotated tag is the one that it names; commits alone are no items."""
    commit = repository.commit("first")
    for name in ["v1.10", "v1.9", "nightly"]:
        repository.git("tag", "-m", name, name)
    repository.git("push", "-q", "--tags")
    watcher = watching(repository.bare, tags=["v*"])
    found = watcher.poll()
    assert moved(found) == [(f"refs/tags/{n}", commit, None) for n in ["v1.9", "v1.10"]]
    assert found[0]["tag"] == "v1.9" and found[0]["subject"] == "first"
    assert watcher.keys == [f"tag:{name}:{commit}" for name in ["v1.9", "v1.10"]]
    second = repository.commit("second")
    assert watcher.poll() == []
    repository.git("tag", "-f", "v1.9")
    repository.git("push", "-q", "-f", "--tags")
    assert moved(watcher.poll()) == [("refs/tags/v1.9", second, commit)]
    repository.git("push", "-q", "origin", ":v1.9")
    assert watcher.poll() == []


def test_a_tag_may_name_no_commit(repository: Repository) -> None:
    """It has no subject then."""
    repository.commit("first")
    (repository.clone / "file").write_text("x")
    blob = repository.git("hash-object", "-w", "file")
    repository.git("tag", "key", blob)
    repository.git("push", "-q", "--tags")
    (item,) = watching(repository.bare, tags=["key"]).poll()
    assert item["commit"] == blob and "subject" not in item


def test_an_empty_repository_waits_for_its_first_push(repository: Repository) -> None:
    """Which is an item then, with and without names of branches."""
    watchers = [watching(repository.bare), watching(repository.bare, branches=["main"])]
    assert [watcher.poll() for watcher in watchers] == [[], []]
    first = repository.commit("first")
    for watcher in watchers:
        assert moved(watcher.poll()) == [("refs/heads/main", first, None)]


def test_another_branch_in_head_is_no_new_commit(repository: Repository) -> None:
    """A working copy is switched back and forth; what was committed meanwhile counts on return."""
    repository.commit("first")
    watcher = watching(repository.clone)
    watcher.poll()
    repository.commit("on feature", "feature")
    assert watcher.poll() == []
    more = repository.commit("more", "feature")
    assert [at for _, at, _ in moved(watcher.poll())] == [more]
    repository.git("branch", "-f", "main", more)
    assert watcher.poll() == []
    repository.git("checkout", "-q", "main")
    assert [(ref, at) for ref, at, _ in moved(watcher.poll())] == [("refs/heads/main", more)]
    # During a rebase HEAD names no branch.
    repository.git("checkout", "-q", "--detach")
    assert watcher.poll() == []
    with pytest.raises(SourceError, match="names no branch; name the `branches`"):
        watching(repository.clone).poll()


def test_a_branch_that_does_not_exist_is_an_error(repository: Repository) -> None:
    """A typing error must not go unnoticed."""
    repository.commit("first")
    with pytest.raises(SourceError, match="has no branch 'mian'"):
        watching(repository.bare, branches=["main", "mian"]).poll()


def test_a_repository_that_is_gone_or_empty_now_is_an_error(
    repository: Repository, tmp_path: Path
) -> None:
    """Nothing counts as removed, and nothing as new afterwards."""
    repository.commit("first")
    watcher = watching(repository.bare)
    watcher.poll()
    before = watcher.cursor
    repository.bare.rename(tmp_path / "away")
    with pytest.raises(SourceError, match=r"exit code 128; stderr ends with:\nfatal: "):
        watcher.poll()
    repository.git("init", "-q", "--bare", str(repository.bare))
    with pytest.raises(SourceError, match="has no branches any more"):
        watcher.poll()
    assert watcher.cursor == before


def test_other_branches_by_other_keys_are_a_new_baseline(repository: Repository) -> None:
    """A pattern that is widened does not start a task for every branch that was there."""
    repository.commit("first")
    repository.commit("second", "feature")
    watcher = watching(repository.bare)
    watcher.poll()
    watcher.spec["git"]["branches"] = ["*"]
    assert len(watcher.poll()) == 2 and watcher.last.new_baseline is not None
    assert watcher.poll() == [] and watcher.last.new_baseline is None


def test_paths_start_at_the_workflow_file(repository: Repository, tmp_path: Path) -> None:
    """And at home with `~`."""
    repository.commit("first")
    watcher = watching("bare.git")
    watcher.workflow_path = tmp_path / "workflow.yaml"
    assert len(watcher.poll()) == 1
    assert len(watching("~/../bare.git").poll()) == 1


@pytest.mark.parametrize(
    "url",
    [
        "--upload-pack=touch stolen",
        "-oProxyCommand=touch stolen",
        "ext::sh -c touch% stolen",
        "::x",
        "https://example.com/\nx",
    ],
)
def test_addresses_that_are_options_or_commands_are_refused(url: str) -> None:
    """Before git sees them."""
    with pytest.raises(SourceError, match="url: "):
        watching(url).poll()


REFS = f"{'1' * 40}\trefs/heads/main\n".encode()
HEAD = b"ref: refs/heads/main\n"


def serve_repository(server: Server) -> None:
    """Serve a repository as files, as any web server can."""
    server.routes["/x.git/info/refs"] = answer(200, REFS)
    server.routes["/x.git/HEAD"] = answer(200, HEAD)


def test_git_reaches_the_checked_address_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what the name resolves to a moment later: here only the check knows it."""
    asked: list[str] = []

    async def allowed(policy: AddressPolicy, host: str, _port: int) -> list[Address]:
        asked.append(host)
        return [ip_address("127.0.0.1")]

    monkeypatch.setattr(git, "allowed_addresses", allowed)

    async def story() -> None:
        async with serving() as server:
            serve_repository(server)
            watcher = watching(server.url("/x.git", "repository.invalid"))
            assert moved(await watcher.poll_once()) == [("refs/heads/main", "1" * 40, None)]

    asyncio.run(story())
    assert asked == ["repository.invalid"]


@pytest.mark.parametrize("scheme", ["http", "git"])
def test_a_private_address_needs_leave(scheme: str) -> None:
    """The address policy of the `http` step holds for git too."""

    async def story() -> None:
        async with serving() as server:
            serve_repository(server)
            url = server.url("/x.git").replace("http", scheme)
            with pytest.raises(SourceError, match=r"127\.0\.0\.1 .* `http\.allow_private`"):
                await watching(url).poll_once()
            assert server.received == []

    asyncio.run(story())


def test_an_address_of_ipv6_is_no_name() -> None:
    """Git connects to it; told to resolve it, it would refuse the whole address."""
    watcher = watching("http://[::1]:9/x.git")
    watcher.limits = LOOPBACK
    with pytest.raises(SourceError, match="onnect"):
        watcher.poll()


def test_redirects_are_refused() -> None:
    """Git would follow one to any address: the message says what to write instead."""

    async def story() -> None:
        async with serving() as server:
            serve_repository(server)
            target = server.url("/x.git/info/refs", "localhost")
            server.routes["/old.git/info/refs"] = answer(302, b"", {"Location": target})
            watcher = watching(server.url("/old.git"))
            watcher.limits = LOOPBACK
            with pytest.raises(SourceError, match=r"redirect, .* write the new address as `url`"):
                await watcher.poll_once()
            assert [request.target.split("?")[0] for request in server.received] == [
                "/old.git/info/refs"
            ]

    asyncio.run(story())


def test_git_runs_no_program_that_an_address_or_a_configuration_names(
    repository: Repository, tmp_path: Path
) -> None:
    """A rewritten address is refused by git itself; a repository's own programs never run."""
    signer = tmp_path / "signer"
    signer.write_text(
        "#!/bin/sh\ncat > /dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\n"
        "echo '-----BEGIN PGP SIGNATURE-----'\necho '-----END PGP SIGNATURE-----'\n"
    )
    signer.chmod(0o755)
    repository.git("config", "gpg.program", str(signer))
    repository.git("config", "commit.gpgSign", "true")
    repository.commit("first")
    stolen = tmp_path / "stolen"
    config = tmp_path / "home" / ".gitconfig"
    config.write_text(
        f'[url "ext::touch {stolen} "]\n\tinsteadOf = evil:\n[protocol "ext"]\n\tallow = always\n'
    )
    with pytest.raises(SourceError, match="transport 'ext' not allowed"):
        watching("evil:x").poll()
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\ntouch {stolen}\n")
    program.chmod(0o755)
    for name in ["gpg.program", "core.sshCommand", "core.fsmonitor", "core.pager"]:
        repository.git("config", name, str(program))
    repository.git("config", "log.showSignature", "true")
    assert len(watching(repository.clone).poll()) == 1
    assert not stolen.exists()
    # They would run: the commit is signed.
    repository.git("log", "-1")
    assert stolen.exists()


def test_passwords_in_an_address_are_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if git itself prints them."""
    git = tmp_path / "git"
    git.write_text('#!/bin/sh\necho "fatal: $@" >&2\nexit 128\n')
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    watcher = watching("https://person:hunter2@127.0.0.1:9/x.git")
    watcher.limits = LOOPBACK
    with pytest.raises(SourceError) as failed:
        watcher.poll()
    assert "hunter2" not in str(failed.value) and "-- https://127.0.0.1:9/x.git" in str(
        failed.value
    )


def test_git_never_asks_and_is_ended_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A remote that never answers costs the timeout; no process of git is left."""
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    ssh = tmp_path / "ssh"
    ssh.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/own\nsleep 600\n")
    ssh.chmod(0o755)
    (tmp_path / "home" / ".gitconfig").write_text(f"[core]\n\tsshCommand = {ssh}\n")
    watcher = watching("ssh://git@127.0.0.1:9/x.git")
    watcher.timeout_seconds = 1.0
    with pytest.raises(SourceError, match="did not end within 1 seconds"):
        watcher.poll()
    assert processes.start_time(int((tmp_path / "own").read_text())) is None


def test_too_many_references_are_refused(repository: Repository) -> None:
    """In one poll."""
    for number in range(3):
        repository.commit("x", f"b{number}")
    watcher = watching(repository.bare, branches=["*"])
    watcher.most_items = 2
    with pytest.raises(SourceError, match="3 references moved"):
        watcher.poll()


def test_odd_texts_in_commits_are_storable(repository: Repository) -> None:
    """Bytes that are not UTF-8 in a subject and in the name of a branch."""
    repository.git("checkout", "-q", "-B", "main")
    subject = repository.clone / "subject"
    subject.write_bytes(b"caf\xe9 \x01")
    repository.git(
        "-c", "i18n.commitEncoding=x-none", "commit", "-q", "--allow-empty", "-F", "subject"
    )
    repository.git("push", "-q", "origin", "main")
    (item,) = watching(repository.bare).poll()
    assert item["subject"].startswith("caf")


def test_without_git_the_message_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program is needed only by this source."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="there is no program 'git' on the PATH"):
        watching(tmp_path).poll()
