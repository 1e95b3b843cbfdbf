"""Settings that change while the agent runs: what is applied, what is not, and what is refused."""

import asyncio
import json
import os
import pty
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from agent import bootstrap
from agent.config.discovery import Place
from agent.config.loader import Configuration, read
from agent.config.locations import INSTANCE_FILE
from agent.config.reloading import RELOADED, changed_keys, is_reloaded, merged
from agent.config.settings import Settings
from agent.core.files import file_descriptors
from agent.core.logs import audit, logging
from agent.daemon import daemon
from agent.daemon.controlling_terminal import ControllingTerminal
from agent.daemon.instance_file import InstanceFile, running_instance
from agent.daemon.settings_reload import SettingsReload
from agent.store.db.database import Database
from tests.support.cli import PATIENCE_SECONDS

TEXT = """\
[engine]
slots = 5
[server]
enabled = false
[models.mine]
provider = "echo"
"""


def configured(path: Path, text: str = TEXT, **environment: str) -> Configuration:
    """Write a configuration and read it."""
    file = path / "config.toml"
    file.write_text(text, encoding="utf-8")
    return read(Place(path, file, "here"), environment)


class Recorder:
    """Takes over settings, and keeps them."""

    def __init__(self) -> None:
        self.applied: list[Settings] = []

    async def apply(self, _old: Settings, settings: Settings) -> None:
        self.applied.append(settings)


def reload_of(
    configuration: Configuration, recorder: Recorder, database: Database
) -> SettingsReload:
    """Return the reload of a daemon whose parts are a recorder."""
    configuration.settings.home.mkdir(mode=0o700, exist_ok=True)
    instance_file = InstanceFile(configuration.settings.home, configuration, "2026-01-05T08:00:00Z")
    instance_file.write(None)
    return SettingsReload(configuration, recorder.apply, instance_file, database.clock)


def test_every_reloaded_name_is_a_section_or_a_key() -> None:
    """A name with a typing error would silently need a restart."""
    for name in RELOADED:
        section, _, key = name.partition(".")
        assert section in Settings.model_fields, name
        if key:
            assert key in type(getattr(Settings(), section)).model_fields, name


def test_what_changed_is_named_and_divided(tmp_path: Path, sqlite_database: Database) -> None:
    """Keys that a running agent can take over are applied; the others keep their values."""
    recorder = Recorder()
    reload = reload_of(configured(tmp_path), recorder, sqlite_database)
    changed = TEXT.replace("slots = 5", "slots = 6\nlease_seconds = 30.0").replace(
        "enabled = false", "enabled = false\nport = 9"
    )
    configured(tmp_path, changed + 'model = "x"\n[models.other]\nprovider = "echo"\n')
    result = asyncio.run(reload.run())
    assert result["applied"] == ["engine.slots", "models.mine", "models.other"]
    assert result["needs_restart"] == ["engine.lease_seconds", "server.port"]
    assert result["problems"] == []
    (applied,) = recorder.applied
    assert (applied.engine.slots, applied.engine.lease_seconds) == (6, 60.0)
    assert applied.server.port == Settings().server.port
    assert sorted(applied.models) == ["mine", "other"]
    again = asyncio.run(reload.run())
    assert (again["applied"], again["needs_restart"]) == ([], result["needs_restart"])
    assert len(recorder.applied) == 1


@pytest.mark.parametrize("text", ["[engine]\nslots = 0\n", "[engine\n", "[engin]\nslots = 1\n"])
def test_a_broken_file_is_refused(tmp_path: Path, sqlite_database: Database, text: str) -> None:
    """The old settings stay in force, and the answer says what is wrong."""
    recorder = Recorder()
    reload = reload_of(configured(tmp_path), recorder, sqlite_database)
    (tmp_path / "config.toml").write_text(text)
    result = asyncio.run(reload.run())
    assert str(tmp_path / "config.toml") in result["problems"][0]
    assert recorder.applied == []
    assert reload.settings.engine.slots == 5
    instance = running_instance(tmp_path / "data")
    assert instance is not None
    assert (instance.reloads, instance.last_reload) == (1, result)


def test_a_file_that_others_can_write_is_refused(tmp_path: Path, sqlite_database: Database) -> None:
    """As at a start: its contents may no longer be its owner's."""
    recorder = Recorder()
    reload = reload_of(configured(tmp_path), recorder, sqlite_database)
    configured(tmp_path, TEXT.replace("5", "6"))
    (tmp_path / "config.toml").chmod(0o666)
    result = asyncio.run(reload.run())
    assert "users who are not trusted" in result["problems"][0]
    assert recorder.applied == []


def test_older_settings_are_noticed(tmp_path: Path, sqlite_database: Database) -> None:
    """By key, whatever the environment of the agent sets; after a reload nothing is older."""
    reload = reload_of(configured(tmp_path, AGENT_ENGINE__BATCH="7"), Recorder(), sqlite_database)
    instance = running_instance(tmp_path / "data")
    assert instance is not None
    assert instance.outdated_keys(configured(tmp_path)) == []
    changed = configured(tmp_path, TEXT.replace("slots = 5", "slots = 6\nbatch = 9"))
    assert instance.outdated_keys(changed) == ["engine.slots"]
    asyncio.run(reload.run())
    instance = running_instance(tmp_path / "data")
    assert instance is not None
    assert instance.outdated_keys(changed) == []


def test_the_instance_file_describes_only_a_live_process(
    tmp_path: Path, sqlite_database: Database
) -> None:
    """A file that a killed agent left behind is ignored, as is a damaged one; it holds no values."""
    secret = '[database]\nurl = "postgresql://ann:hunter2@db/agent"\n'
    reload_of(configured(tmp_path, secret), Recorder(), sqlite_database)
    path = tmp_path / "data" / INSTANCE_FILE
    assert path.stat().st_mode & 0o777 == 0o600
    assert "hunter2" not in path.read_text()
    assert running_instance(tmp_path / "data") is not None
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"process_started": "another boot:1"}))
    assert running_instance(tmp_path / "data") is None
    path.write_text("{")
    assert running_instance(tmp_path / "data") is None


def test_merging_keeps_what_needs_a_restart() -> None:
    """Every key is either taken over or unchanged."""
    old, new = (
        Settings(),
        Settings.model_validate(
            {
                "engine": {"slots": 1, "lease_seconds": 9.0},
                "server": {"port": 1},
                "llm": {"model": "m"},
            }
        ),
    )
    result = merged(old, new)
    assert changed_keys(old, result) == ["engine.slots", "llm.model"]
    assert not any(is_reloaded(key) for key in changed_keys(result, new))


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a daemon run in the process of the tests, which goes on with others."""
    monkeypatch.setattr(daemon, "_exit_after", lambda _: None)
    monkeypatch.setattr(logging, "configure", lambda *_, **__: None)
    monkeypatch.setattr(audit, "configure", lambda *_, **__: None)
    monkeypatch.setattr(file_descriptors, "raise_limit", file_descriptors.limit)
    monkeypatch.setattr(bootstrap, "collect_garbage_seldom", lambda: None)


def run_daemon(
    configuration: Configuration,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
    story: Callable[[Any], Awaitable[None]],
) -> None:
    """Run a daemon in this process, and a story beside it that gets the daemon."""
    made: list[Any] = []
    offer = daemon.Daemon.enable_reload

    def note(self: Any, *args: Any, **options: Any) -> None:
        made.append(self)
        offer(self, *args, **options)

    monkeypatch.setattr(daemon.Daemon, "enable_reload", note)

    async def tell() -> None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await story(made[0])
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    telling: list[asyncio.Task[None]] = []

    async def ready(_: str | None) -> None:
        telling.append(asyncio.create_task(tell()))

    async def serve() -> None:
        await daemon.serve(
            configuration.settings, database, configuration=configuration, on_ready=ready
        )
        await telling[0]

    asyncio.run(serve())


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110  (a file is polled)
        await asyncio.sleep(0.01)


@pytest.mark.usefixtures("in_process")
def test_sighup_reaches_every_part_of_a_daemon(
    tmp_path: Path, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Slots, limits, models, budgets, intervals and the workflow directory follow the file."""
    changed = """\
[engine]
slots = 6
[server]
enabled = false
[models.other]
provider = "echo"
[llm]
model = "other"
[budget]
daily_tokens = 10
[http]
allow_private = ["127.0.0.1"]
[approvals]
loop_seconds = 0.5
[workflows]
directory = "elsewhere"
[log]
level = "debug"
"""
    configuration = configured(tmp_path)
    configuration.settings.home.mkdir(mode=0o700)

    async def story(running: Any) -> None:
        await _until(lambda: running_instance(tmp_path / "data") is not None)
        configured(tmp_path, changed)
        os.kill(os.getpid(), signal.SIGHUP)
        await _until(lambda: running_instance(tmp_path / "data").reloads == 1)  # type: ignore[union-attr]
        services = running._worker.services
        assert running._worker.slots.capacity(_no_batch()).slots == 6
        assert sorted(services.models.models) == ["other"]
        assert (services.models.default, services.models.daily_tokens) == ("other", 10)
        assert services.limits.allow_private == ("127.0.0.1",)
        assert running._triggers._schedules.budget.daily_tokens == 10
        assert running._triggers._watchers._runner.limits.allow_private == ("127.0.0.1",)
        assert running._jobs._jobs["approval check"].interval_seconds == 0.5
        assert running._sync._sync.follows(configuration.reread().settings)

    run_daemon(configuration, sqlite_database, monkeypatch, story)
    assert not (tmp_path / "data" / INSTANCE_FILE).exists()


def _no_batch() -> Any:
    from agent.tasks.commit.batch import Batch

    return Batch()


@pytest.mark.usefixtures("in_process")
def test_sighup_of_a_closed_terminal_stops_the_daemon(
    tmp_path: Path, sqlite_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same signal means another thing where the terminal is gone."""
    monkeypatch.setattr(ControllingTerminal, "is_lost", lambda _: True)
    configuration = configured(tmp_path)
    configuration.settings.home.mkdir(mode=0o700)

    async def story(running: Any) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGHUP)
        await _until(lambda: running._is_stopping)
        assert running._reloading is None

    def ignore_second_stop(self: Any, number: signal.Signals) -> None:
        if not self._is_stopping:
            stop(self, number)

    stop = daemon.Daemon._stop
    monkeypatch.setattr(daemon.Daemon, "_stop", ignore_second_stop)
    run_daemon(configuration, sqlite_database, monkeypatch, story)


def test_a_lost_terminal_is_told_from_one_that_is_there() -> None:
    """Closing the other side of a terminal takes it away from its processes."""
    reader, writer = os.pipe()
    child, terminal = pty.fork()
    if child == 0:  # pragma: no cover (another process)
        code = 1
        try:
            # Blocked, so that it cannot come before it is waited for.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
            found = ControllingTerminal()
            states = [found.is_lost()]
            os.write(writer, b"x")
            signal.sigwait({signal.SIGHUP})
            states.append(found.is_lost())
            os.write(writer, json.dumps(states).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    assert os.read(reader, 1) == b"x"
    os.close(terminal)
    answer = os.read(reader, 100)
    os.close(reader)
    assert os.waitpid(child, 0)[1] == 0
    assert json.loads(answer) == [False, True]


def test_an_agent_that_cannot_write_its_instance_file_works(tmp_path: Path) -> None:
    """The file only describes the agent: a directory that cannot be made is no reason to end."""
    configuration = configured(tmp_path, "[engine]\nslots = 3\n")
    (tmp_path / "a-file").write_text("")
    instance_file = InstanceFile(
        tmp_path / "a-file" / "home", configuration, "2026-01-05T08:00:00Z"
    )
    instance_file.write(None)
    instance_file.remove()
    made = InstanceFile(tmp_path / "made" / "home", configuration, "2026-01-05T08:00:00Z")
    made.write(None)
    assert running_instance(tmp_path / "made" / "home") is not None
