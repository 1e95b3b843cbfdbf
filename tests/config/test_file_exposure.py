"""Files that others can change: the agent closes what is its own and refuses to act on the rest."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from agent.cli.commands.doctor_checks.file_checks import file_checks
from agent.config import file_exposure
from agent.config.file_exposure import ExposedError, close_to_others
from agent.config.loader import load
from agent.config.settings import Settings
from agent.core.files.file_trust import Trust, _has_only, trust_in, weaknesses
from agent.server.access.grants import TokenError
from agent.server.access.tokens import Tokens

STRANGER = 54321
"""A user and a group that no machine has."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Return the directory of an agent."""
    return make_place(tmp_path)


def make_place(tmp_path: Path) -> Path:
    """Make the directory of an agent: configuration, workflows, home."""
    (tmp_path / "config.toml").write_text("")
    for name in ("workflows", "data"):
        (tmp_path / name).mkdir(mode=0o700)
    (tmp_path / "workflows" / "hello.yaml").write_text("name: hello\nsteps: {a: {wait: 1ms}}\n")
    (tmp_path / "workflows" / "hello_steps.py").write_text("")
    (tmp_path / "data" / "token").touch(mode=0o600)
    (tmp_path / "data" / "agent.db").touch(mode=0o600)
    return tmp_path


def settings_at(place: Path, **environment: str) -> Settings:
    """Return the settings as a command in this directory would read them."""
    return load(place / "config.toml", environment)


def refusal(settings: Settings) -> str:
    """Return why the agent does not start."""
    with pytest.raises(ExposedError) as caught:
        close_to_others(settings)
    return str(caught.value)


def test_files_that_only_we_can_change_are_accepted(place: Path) -> None:
    """Files of our own, below directories of root's and ours, and below /tmp."""
    assert close_to_others(settings_at(place)) == []
    assert [state for _, state, _ in file_checks(settings_at(place))] == ["ok"]


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o755, 0o702])
def test_the_home_directory_is_closed(place: Path, mode: int) -> None:
    """A home directory of our own loses what others may do; the doctor only says it."""
    home = place / "data"
    home.chmod(mode)
    # So that the group is not one that every machine trusts.
    if os.geteuid() == 0:
        os.chown(home, 0, STRANGER)
        home.chmod(mode)
    states = [state for _, state, _ in file_checks(settings_at(place))]
    is_open_to_group = bool(mode & 0o020) and not Trust().covers_group(home.stat().st_gid)
    assert states == (["error"] if mode & 0o002 or is_open_to_group else ["ok"])
    assert home.stat().st_mode & 0o777 == mode & 0o777
    (told,) = close_to_others(settings_at(place))
    assert str(home) in told
    assert home.stat().st_mode & 0o077 == 0
    assert close_to_others(settings_at(place)) == []


def test_a_home_among_other_files_keeps_its_readers(place: Path) -> None:
    """Where the configuration lies in the home directory itself, only writing is taken away."""
    (place / "config.toml").write_text('[agent]\nhome = "."\n')
    place.chmod(0o777)
    close_to_others(settings_at(place))
    assert place.stat().st_mode & 0o777 == 0o755


def test_files_with_secrets_are_closed(place: Path) -> None:
    """The token and the database lose readers; the doctor warns before that."""
    for name in ("token", "agent.db"):
        (place / "data" / name).chmod(0o644)
    found = list(file_checks(settings_at(place)))
    assert [state for _, state, _ in found] == ["warning", "warning"]
    close_to_others(settings_at(place))
    for name in ("token", "agent.db"):
        assert (place / "data" / name).stat().st_mode & 0o777 == 0o600


def test_a_log_that_sqlite_removes_meanwhile_is_no_error(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process closes its connection between the check of the log's mode and its change."""
    log = place / "data" / "agent.db-wal"
    log.touch()
    log.chmod(0o644)
    readable = file_exposure.readable

    def then_removed(settings: Settings, trust: Trust) -> list[Path]:
        paths = readable(settings, trust)
        assert log in paths
        log.unlink()
        return paths

    monkeypatch.setattr(file_exposure, "readable", then_removed)
    close_to_others(settings_at(place))
    assert not log.exists()


@pytest.mark.parametrize(
    "name",
    [
        "config.toml",
        "workflows",
        "workflows/hello.yaml",
        "workflows/hello_steps.py",
        "data/token",
        "data/agent.db",
    ],
)
def test_files_that_others_can_write_are_refused(place: Path, name: str) -> None:
    """Another user may have changed it: the agent names the file and does not use it."""
    path = place / name
    mode = path.stat().st_mode & 0o777 | 0o002
    path.chmod(mode)
    message = refusal(settings_at(place))
    remedy = f"rm {path}" if path.name == "token" else f"chmod go-w {path}"
    assert f"{path} can be written by every user: {remedy}" in message
    assert path.stat().st_mode & 0o777 == mode
    assert any(
        state == "error" and str(path) in said for _, state, said in file_checks(settings_at(place))
    )


@needs_root
@pytest.mark.parametrize(
    "name", ["config.toml", "workflows", "workflows/hello_steps.py", "data", "data/token"]
)
def test_files_of_another_user_are_refused(place: Path, name: str) -> None:
    """Its owner could change it at any time, whatever its mode."""
    os.chown(place / name, STRANGER, -1)
    assert f"{place / name} belongs to user number {STRANGER}" in refusal(settings_at(place))


def test_a_directory_above_counts(place: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Who can write to a directory can replace what is in it, unless it is sticky."""
    above = tmp_path_factory.mktemp("above")
    home = above / "between" / "home"
    home.mkdir(parents=True, mode=0o700)
    settings = settings_at(place, AGENT_HOME=str(home))
    assert close_to_others(settings) == []
    above.chmod(0o777)
    assert f"{above} can be written by every user" in refusal(settings)
    above.chmod(0o1777)
    assert close_to_others(settings) == []
    if os.geteuid() == 0:
        os.chown(above / "between", STRANGER, -1)
        assert f"{above / 'between'} belongs to user" in refusal(settings)


@pytest.mark.parametrize("name", ["old.yaml", "old_steps.py"])
@pytest.mark.parametrize("device", ["/dev/null", "/dev/zero"])
def test_a_device_among_the_workflows_is_no_workflow(place: Path, name: str, device: str) -> None:
    """Every user may write to it, and no workflow is read from it."""
    (place / "workflows" / name).symlink_to(device)
    assert close_to_others(settings_at(place)) == []
    assert [state for _, state, _ in file_checks(settings_at(place))] == ["ok"]


def test_a_fifo_among_the_workflows_is_no_workflow(place: Path, tmp_path: Path) -> None:
    """What leads to it still counts: there it can be replaced by a file."""
    between = tmp_path / "between"
    between.mkdir()
    os.mkfifo(between / "fifo")
    (between / "fifo").chmod(0o666)
    (place / "workflows" / "old.yaml").symlink_to(between / "fifo")
    assert close_to_others(settings_at(place)) == []
    between.chmod(0o777)
    message = refusal(settings_at(place))
    assert f"{between} can be written by every user" in message
    assert f"{between / 'fifo'} can" not in message


@needs_root
def test_a_special_file_of_another_user_counts(place: Path) -> None:
    """In a sticky directory its owner can put a file in its place."""
    fifo = place / "workflows" / "old.yaml"
    os.mkfifo(fifo)
    os.chown(fifo, STRANGER, -1)
    message = refusal(settings_at(place))
    assert f"{fifo} belongs to user number {STRANGER}: remove {fifo}\n" in message


@needs_root
@pytest.mark.parametrize(
    ("name", "target"),
    [("data/token", "/dev/null"), ("config.toml", "/dev/null"), ("workflows/old", "/dev/shm")],
)
def test_no_advice_to_change_files_of_the_system(place: Path, name: str, target: str) -> None:
    """What a link leads to may serve the whole machine: the link has to go."""
    link = place / name
    link.unlink(missing_ok=True)
    link.symlink_to(target)
    message = refusal(settings_at(place))
    assert f"{target} can be written by every user: remove {link}, which leads to it" in message
    assert "chmod" not in message


@needs_root
def test_every_link_on_the_way_counts(place: Path, tmp_path: Path) -> None:
    """A symbolic link leads where its owner, or the owner of a directory it goes through, wants."""
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "link").symlink_to(place / "data")
    (tmp_path / "home").symlink_to(foreign / "link")
    settings = settings_at(place, AGENT_HOME=str(tmp_path / "home"))
    assert close_to_others(settings) == []
    os.chown(foreign / "link", STRANGER, -1, follow_symlinks=False)
    assert f"{foreign / 'link'} belongs to user" in refusal(settings)
    os.chown(foreign / "link", 0, -1, follow_symlinks=False)
    foreign.chmod(0o777)
    assert f"{foreign} can be written by every user" in refusal(settings)


@needs_root
def test_trusted_users_and_groups(place: Path) -> None:
    """The configuration can trust more users; the file that others write cannot trust its writers."""
    workflows, config = place / "workflows", place / "config.toml"
    os.chown(workflows, STRANGER, STRANGER)
    config.write_text(f'[agent]\ntrusted_users = ["{STRANGER}"]\n')
    assert close_to_others(settings_at(place)) == []
    os.chown(workflows, 0, STRANGER)
    workflows.chmod(0o770)
    assert "can be written by group" in refusal(settings_at(place))
    config.write_text(f'[agent]\ntrusted_groups = ["{STRANGER}"]\n')
    assert close_to_others(settings_at(place)) == []
    os.chown(config, STRANGER, STRANGER)
    config.write_text('[agent]\ntrusted_users = ["*"]\n')
    assert f"{config} belongs to user" in refusal(settings_at(place))
    workflows.chmod(0o700)
    trusted = {"AGENT_AGENT__TRUSTED_USERS": str(STRANGER)}
    assert close_to_others(settings_at(place, **trusted)) == []


def test_a_trusted_user_must_exist() -> None:
    """A misspelled name must not be ignored."""
    with pytest.raises(ValueError, match="no user 'no-such-user'"):
        trust_in(["no-such-user"], [])
    with pytest.raises(ValueError, match="no group 'no-such-group'"):
        trust_in([], ["no-such-group"])


@needs_root
def test_root_for_the_owner_of_the_directory(place: Path) -> None:
    """Root accepts a mounted directory that belongs to another user as a whole, and says so."""
    for path in (place, *place.rglob("*")):
        os.chown(path, STRANGER, STRANGER)
        path.chmod(path.stat().st_mode & 0o700 | 0o060)
    (told,) = close_to_others(settings_at(place))
    assert "can therefore act as root" in told
    os.chown(place / "workflows", STRANGER + 1, -1)
    assert f"{place / 'workflows'} belongs to user number {STRANGER + 1}" in refusal(
        settings_at(place)
    )


def test_tokens_that_another_user_put_there(tmp_path: Path) -> None:
    """A running agent does not let in by a file that another user owns or could write."""
    tokens = Tokens(tmp_path)
    tokens.ensure_owner()
    text = tokens.owner_file.read_text().strip()
    made = tokens.create("phone", ["admin"], None)
    assert tokens.grant_of(text) is not None and tokens.grant_of(made) is not None
    for path in (tokens.owner_file, tmp_path / "tokens.json"):
        path.chmod(0o602)
    assert Tokens(tmp_path).grant_of(text) is None and Tokens(tmp_path).grant_of(made) is None
    if os.geteuid() == 0:
        for path in (tokens.owner_file, tmp_path / "tokens.json"):
            os.chown(path, STRANGER, -1)
            path.chmod(0o600)
        assert Tokens(tmp_path).grant_of(text) is None and Tokens(tmp_path).grant_of(made) is None
    with pytest.raises(TokenError, match="other users can change it"):
        Tokens(tmp_path).listed()
    assert Tokens(tmp_path, Trust(is_for_everyone=True)).grant_of(text) is not None


def test_a_token_file_whose_mode_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A running agent notices that others can write a file, and that they no longer can."""
    monkeypatch.setattr("agent.server.access.grants.CACHE_SECONDS", 0.0)
    tokens = Tokens(tmp_path)
    text = tokens.create("phone", ["admin"], None)
    for mode, is_accepted in ((0o600, True), (0o602, False), (0o600, True)):
        (tmp_path / "tokens.json").chmod(mode)
        assert (tokens.grant_of(text) is not None) is is_accepted


@pytest.mark.parametrize(
    ("name", "members", "is_accepted"),
    [("ada", [], True), ("ada", ["bob"], False), ("domain users", [], False)],
)
def test_a_private_group_of_a_directory_service(
    name: str, members: list[str], is_accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a service finds users by number, and lists none: the group's name says whose it is."""
    us, other = SimpleNamespace(pw_name="ada", pw_uid=STRANGER, pw_gid=STRANGER), 54322
    bob = SimpleNamespace(pw_name="bob", pw_uid=other, pw_gid=other)
    group = SimpleNamespace(gr_name=name, gr_mem=members)
    monkeypatch.setattr("os.geteuid", lambda: STRANGER)
    monkeypatch.setattr("pwd.getpwall", list)
    monkeypatch.setattr("pwd.getpwuid", lambda _: us)
    monkeypatch.setattr("pwd.getpwnam", {"ada": us, "bob": bob}.__getitem__)
    monkeypatch.setattr("grp.getgrgid", lambda _: group)
    _has_only.cache_clear()
    try:
        assert Trust().covers_group(STRANGER) is is_accepted
    finally:
        _has_only.cache_clear()


def test_files_of_secrets(place: Path) -> None:
    """The doctor names files by reference that others can read, or write."""
    secret = place / "key"
    secret.write_text("open sesame")
    secret.chmod(0o644)
    (place / "config.toml").write_text(
        f'[models.x]\nprovider = "openai"\nmodel = "x"\nkey = "file:{secret}"\n'
    )
    (found,) = file_checks(settings_at(place))
    assert found == (
        "secrets",
        "warning",
        f"{secret} can be read by other users: chmod 600 {secret}",
    )
    secret.chmod(0o602)
    found = next(file_checks(settings_at(place)))
    assert found[:2] == ("secrets", "error")
    hook = "on: {webhook: {verify: token, secret: 'file:" + str(secret) + "'}}\n"
    (place / "config.toml").write_text("")
    (place / "workflows" / "hello.yaml").write_text(
        "name: hello\n" + hook + "steps: {a: {wait: 1ms}}\n"
    )
    assert next(file_checks(settings_at(place)))[:2] == ("secrets", "error")


def test_a_secret_in_the_home_of_an_unknown_user(place: Path) -> None:
    """The doctor reports that it cannot be read, and goes on."""
    config = '[models.m]\nprovider = "openai"\nmodel = "m"\nkey = "file:~no-such-user/key"\n'
    (place / "config.toml").write_text(config)
    (found,) = file_checks(settings_at(place))
    assert found[:2] == ("secrets", "warning") and "~no-such-user/key cannot be read" in found[2]


@needs_root
@pytest.mark.parametrize(
    ("spoil", "is_accepted"),
    [
        (lambda place: None, True),
        (lambda place: os.chown(place / "config.toml", 0, 0), True),
        (lambda place: (place / "data").chmod(0o777), True),
        (lambda place: os.chown(place / "workflows", STRANGER + 1, -1), False),
        (lambda place: os.chown(place, STRANGER + 1, -1), False),
    ],
)
def test_as_a_user_without_rights(spoil: Callable[[Path], None], is_accepted: bool) -> None:
    """An ordinary user accepts files of its own and of root's, and no other's."""
    with tempfile.TemporaryDirectory(dir="/tmp") as directory:
        place = make_place(Path(directory))
        for path in (place, *place.rglob("*")):
            os.chown(path, STRANGER, STRANGER)
        place.chmod(0o755)
        spoil(place)
        message = as_user(STRANGER, lambda: close_to_others(settings_at(place)))
    assert (message == "") is is_accepted, message
    assert is_accepted or f"belongs to user number {STRANGER + 1}" in message


def as_user(user: int, act: Callable[[], object]) -> str:
    """Do something as another user, in a process of its own; return why it was refused."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 0
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            act()
        except BaseException as problem:
            os.write(writing, f"{type(problem).__name__}: {problem}".encode())
            status = 1
        finally:
            os._exit(status)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as pipe:
        message = pipe.read()
    os.waitpid(child, 0)
    return message


def test_weaknesses_of_what_is_not_there(tmp_path: Path) -> None:
    """What does not exist yet is judged by the directories on the way."""
    assert list(weaknesses(tmp_path / "a" / "b", Trust())) == []
    assert file_exposure.readable(settings_at_nothing(tmp_path), Trust()) == []


def settings_at_nothing(tmp_path: Path) -> Settings:
    """Return settings without any file."""
    return Settings(base=tmp_path)


def test_compiled_modules_count(place: Path) -> None:
    """Python runs what it finds in `__pycache__` in place of the module beside it."""
    cache = place / "workflows" / "__pycache__"
    cache.mkdir(mode=0o755)
    compiled = cache / "hello_steps.cpython-312.pyc"
    compiled.touch(mode=0o644)
    close_to_others(settings_at(place))
    for path in (compiled, cache):
        mode = path.stat().st_mode & 0o777
        path.chmod(0o777)
        with pytest.raises(ExposedError, match=str(path)):
            close_to_others(settings_at(place))
        path.chmod(mode)


def test_a_linked_directory_counts_with_all_that_is_in_it(place: Path, tmp_path: Path) -> None:
    """Modules are imported from there too; a link that leads back to its own directory ends nowhere."""
    package = tmp_path / "shared"
    package.mkdir(mode=0o755)
    module = package / "steps.py"
    module.touch(mode=0o644)
    (place / "workflows" / "shared").symlink_to(package)
    (package / "again").symlink_to(place / "workflows")
    close_to_others(settings_at(place))
    module.chmod(0o666)
    with pytest.raises(ExposedError, match=str(module.name)):
        close_to_others(settings_at(place))
