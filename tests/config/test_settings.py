"""The configuration: defaults, file, environment, and what is refused."""

import json
from pathlib import Path
from typing import Any, get_origin

import pytest

from agent.config import settings as config
from agent.config.default_file import default_text
from agent.config.execution import EngineSettings
from agent.config.loader import ConfigError, load
from agent.config.settings import sections

ROOT = Path(__file__).parents[2]


def _file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _refused(tmp_path: Path, text: str, **environment: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(_file(tmp_path, text), environment)
    return [problem.replace(f"{tmp_path}/", "") for problem in caught.value.problems]


def test_shipped_file_is_the_defaults() -> None:
    """The commented config.toml says exactly what the models do, in values and in words."""
    assert (ROOT / "config.toml").read_text(encoding="utf-8") == default_text()
    settings = load(ROOT / "config.toml", {})
    assert settings.model_dump() == config.Settings().model_dump()


def test_paths_start_at_the_file(tmp_path: Path) -> None:
    """Home, database and workflows are beside the configuration, wherever the command runs."""
    settings = load(_file(tmp_path, ""), {})
    assert settings.home == tmp_path / "data"
    assert settings.database_url == f"sqlite:///{tmp_path / 'data' / 'agent.db'}"
    assert settings.workflow_directory == tmp_path / "workflows"


def test_environment_overrides_the_file(tmp_path: Path) -> None:
    """A variable wins over the file, read as the type of its key."""
    settings = load(
        _file(tmp_path, "[engine]\nslots = 3\nbatch = 5\n"),
        {
            "AGENT_ENGINE__SLOTS": "7",
            "AGENT_ENGINE__POLL_SECONDS": "0.5",
            "AGENT_HTTP__ALLOW_PRIVATE": "127.0.0.1, 10.0.0.0/8",
            "AGENT_LOG__LEVEL": "debug",
            "AGENT_HOME": str(tmp_path / "elsewhere"),
        },
    )
    assert (settings.engine.slots, settings.engine.batch) == (7, 5)
    assert settings.engine.poll_seconds == 0.5
    assert settings.http.allow_private == ["127.0.0.1", "10.0.0.0/8"]
    assert settings.log.level == "debug"
    assert settings.home == tmp_path / "elsewhere"


@pytest.mark.parametrize(
    ("variable", "section", "key"),
    [
        (f"AGENT_{section.upper().replace('.', '__')}__{key.upper()}", section, key)
        for section, model in sections().items()
        for key, field in model.model_fields.items()
        if get_origin(field.annotation) is list
    ],
)
def test_a_list_in_the_environment_is_plain_or_json(
    tmp_path: Path, variable: str, section: str, key: str
) -> None:
    """Both ways mean the same; JSON that is broken or holds something else is refused."""
    own = {"events": ["task.failed", "task.succeeded"], "operator": ["telegram:1", "slack:U1"]}
    names = own.get(key, ["one.example", "10.0.0.1"])
    read = []
    for text in (", ".join(names), json.dumps(names), f" {json.dumps(names)} "):
        found: Any = load(_file(tmp_path, ""), {variable: text})
        for part in (*section.split("."), key):
            found = getattr(found, part)
        read.append(found)
    assert read == [names] * 3
    for wrong in ('["127.0.0.1"', '{"a": 1}', "[1]", '["127.0.0.1", null]', "\"a\",'b'", '[["a"]]'):
        problems = _refused(tmp_path, "", **{variable: wrong})
        assert problems, wrong
        assert all(problem.startswith(f"{variable}: ") for problem in problems), problems


@pytest.mark.parametrize("entry", ["[::1]", "http://host", "host name", "10.0.0.0/33", "", "a..b"])
def test_an_exception_that_allows_nothing_is_refused(tmp_path: Path, entry: str) -> None:
    """What is neither an address nor a network nor a host name would be accepted in vain."""
    (problem,) = _refused(tmp_path, f"[http]\nallow_private = [{json.dumps(entry)}]\n")
    assert "should be an address, a network or a host name" in problem


@pytest.mark.parametrize(
    "entry",
    ["127.0.0.1", "::1", "10.0.0.0/8", "fd00::/8", "10.1.2.3/8", "nas", "a-b.local", "süd.de"],
)
def test_exceptions_that_can_be_made(tmp_path: Path, entry: str) -> None:
    """Addresses, networks and host names are taken as they are."""
    settings = load(_file(tmp_path, f"[http]\nallow_private = [{json.dumps(entry)}]\n"), {})
    assert settings.http.allow_private == [entry]


def test_agent_config_names_the_file(tmp_path: Path) -> None:
    """AGENT_CONFIG is used when no file is given; a named file that is missing is refused."""
    path = _file(tmp_path, "[engine]\nslots = 3\n")
    assert load(None, {"AGENT_CONFIG": str(path)}).engine.slots == 3
    with pytest.raises(ConfigError, match="no such configuration file"):
        load(None, {"AGENT_CONFIG": str(tmp_path / "gone.toml")})


def test_a_missing_default_file_means_defaults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any configuration the defaults hold, from the current directory."""
    monkeypatch.chdir(tmp_path)
    settings = load(None, {})
    assert settings.engine == EngineSettings()
    assert settings.home == tmp_path / "data"


def test_all_problems_come_at_once_with_their_lines(tmp_path: Path) -> None:
    """Each unknown key and bad value is reported with file, line, key and what would be right."""
    text = """\
# a comment
[engine]
slot = 3
poll_seconds = 100

[htp]
x = 1
[http]
allow_private = [
    1,
]
[log]
level = "loud"
"""
    assert _refused(tmp_path, text, AGENT_ENGINE__BATCH="many", AGENT_ENGIN__SLOTS="1") == [
        "config.toml:3: engine.slot: there is no such key; did you mean 'slots'?",
        "config.toml:4: engine.poll_seconds: should be less than or equal to 60, not 100",
        "config.toml:6: htp: there is no such section; did you mean 'http'?",
        "config.toml:9: http.allow_private.0: should be a valid string, not 1",
        "config.toml:13: log.level: should be 'debug', 'info', 'warning' or 'error', not 'loud'",
        "AGENT_ENGINE__BATCH: should be a valid integer, not 'many'",
        "AGENT_ENGIN__SLOTS: there is no such section; did you mean 'engine'?",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[engine]\nslots = true\n", "config.toml:2: engine.slots: "),
        ("[engine]\nslots = 0\n", "config.toml:2: engine.slots: "),
        ("[engine]\nslots = 1.5\n", "config.toml:2: engine.slots: "),
        ("[engine]\nlease_seconds = nan\n", "config.toml:2: engine.lease_seconds: "),
        ("engine.slots = -1\n", "config.toml:1: engine.slots: "),
        ("engine = 3\n", "config.toml:1: engine: is a section"),
        ("\nengine = {slots = 'x'}\n", "config.toml:2: engine.slots: "),
        ("base = 'x'\n", "config.toml:1: base: there is no such section"),
        ("[database]\nurl = 'mysql://x'\n", "config.toml:2: database.url: must be empty"),
        ("[engine\n", "config.toml: this is not TOML"),
        ("[engine]\nslots = 1\nslots = 2\n", "config.toml: this is not TOML"),
    ],
)
def test_bad_values_are_refused(tmp_path: Path, text: str, expected: str) -> None:
    """Wrong types, bounds, shapes and syntax are refused; a boolean is no number."""
    (problem,) = _refused(tmp_path, text)
    assert problem.startswith(expected)


def test_an_unreadable_file_is_a_problem_not_a_traceback(tmp_path: Path) -> None:
    """A directory or undecodable bytes in the file's place are reported as such."""
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    for path in (tmp_path, tmp_path / "bytes.toml"):
        with pytest.raises(ConfigError, match="cannot be read"):
            load(path, {})


def test_models_are_sections_of_their_own(tmp_path: Path) -> None:
    """Each model has a section; its problems are reported, and a key itself is not repeated."""
    text = """\
[models.claude]
provider = "anthropic"
key = "env:SOME_KEY"
usd_per_million_in = 3
[models.local]
provider = "openai"
base_url = "http://127.0.0.1:1234/v1"
[llm]
model = "claude"
[budget]
daily_usd = 2.5
daily_seconds = 90
"""
    settings = load(_file(tmp_path, text), {})
    assert sorted(settings.models) == ["claude", "local"]
    assert settings.models["claude"].usd_per_million_in == 3
    assert (settings.llm.model, settings.budget.daily_usd) == ("claude", 2.5)
    assert settings.budget.daily_seconds == 90
    bad = """\
[models.claude]
provider = "someone"
key = "sk-secret-0123456789"
modle = "x"
[models.bare]
[modles.x]
"""
    problems = "\n".join(_refused(tmp_path, bad))
    assert "config.toml:2: models.claude.provider" in problems
    assert "config.toml:3: models.claude.key: must say where the key is" in problems
    assert "config.toml:4: models.claude.modle" in problems and "'model'" in problems
    assert "models.bare.provider" in problems
    assert "did you mean 'models'?" in problems
    assert "sk-secret" not in problems


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[mcp.a]\n", "config.toml:1: mcp.a: needs either command"),
        ('[mcp.a]\ncommand = "x"\nurl = "http://x"\n', "needs either command"),
        ('[mcp.a]\nurl = "http://x"\nenv = {A = "hush"}\n', "need command"),
        ('[mcp.a]\ncommand = "x"\nheaders = {A = "hush"}\n', "headers need url"),
        ('[mcp.a]\ncommand = "x"\nheader = {A = "hush"}\n', "did you mean 'headers'?"),
    ],
)
def test_mcp_servers_are_checked(text: str, said: str, tmp_path: Path) -> None:
    """A server is a program or an address; what stands in its secrets' places is not repeated."""
    (problem,) = _refused(tmp_path, text)
    assert said in problem
    assert "hush" not in problem


def test_variables_that_belong_together(tmp_path: Path) -> None:
    """What one key needs of another may come from another variable; alone it is refused."""
    given = {
        "AGENT_CHANNELS__WEBHOOK__URL": "https://example.com/hook",
        "AGENT_CHANNELS__WEBHOOK__SECRET": "env:HOOK",
    }
    (tmp_path / "config.toml").write_text("")
    assert load(tmp_path / "config.toml", given).channels.webhook.secret == "env:HOOK"
    del given["AGENT_CHANNELS__WEBHOOK__SECRET"]
    with pytest.raises(ConfigError, match=r"channels\.webhook: .*url needs secret"):
        load(tmp_path / "config.toml", given)


@pytest.mark.parametrize("given", ['["mailtos://ann:hunter2@example.org"]', '"ntfy://hunter2@x"'])
def test_an_address_of_apprise_in_the_file_is_refused_and_not_repeated(
    tmp_path: Path, given: str
) -> None:
    """It holds a password; the message says how to write it."""
    (tmp_path / "config.toml").write_text(f"[notify]\noperator = {given}\n")
    with pytest.raises(ConfigError, match=r"terminal:USER, or apprise: .* env:NAME") as raised:
        load(tmp_path / "config.toml", {})
    assert "hunter2" not in str(raised.value)


def test_a_message_does_not_repeat_a_possible_secret(tmp_path: Path) -> None:
    """A token in place of its reference gets a message that does not contain it."""
    path = tmp_path / "config.toml"
    path.write_text('[channels.slack]\nbot_token = "xoxb-very-secret"\napp_token = "env:APP"\n')
    with pytest.raises(ConfigError, match="must say where the bot_token is") as raised:
        load(path, {})
    assert "very-secret" not in str(raised.value)


def test_the_settings_of_an_s3_store_reach_its_driver(tmp_path: Path) -> None:
    """Its endpoint, region and keys become the driver's options, with timeouts."""
    text = """
[artifacts]
url = "s3://bucket/path"
timeout_seconds = 20.0
endpoint_url = "http://127.0.0.1:9000"
region = "eu-central-1"
key = "env:STORE_KEY"
secret = "file:/run/secrets/store"
options = { anon = false, token = "env:STORE_TOKEN" }
"""
    assert load(_file(tmp_path, text), {}).artifacts.storage_options() == {
        "endpoint_url": "http://127.0.0.1:9000",
        "client_kwargs": {"region_name": "eu-central-1"},
        "key": "env:STORE_KEY",
        "secret": "file:/run/secrets/store",
        "config_kwargs": {
            "connect_timeout": 5.0,
            "read_timeout": 20.0,
            "retries": {"max_attempts": 1},
        },
        "anon": False,
        "token": "env:STORE_TOKEN",
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('url = "s3://b"\nkey = "AKIA1234"\nsecret = "env:S"', "must say where the key is"),
        ('url = "s3://b"\nkey = "env:K"', "key and secret go together"),
        ('url = "gs://b"\nregion = "x"', "need an s3:// url"),
        ('url = "kept"\noptions = { token = "hidden-token" }', "options need the url"),
        (
            'url = "gopher://robot:hidden-token@host/kept"',
            'config.toml:2: artifacts.url: fsspec has no driver for "gopher://"',
        ),
        ('url = "simplecache::gopher://host"', 'no driver for "gopher://"'),
        ('url = "ftp:///kept"', "artifacts.url: names no host or bucket"),
        ('url = "ftp://host:port/kept"', "artifacts.url: Port could not be cast"),
    ],
)
def test_unusable_settings_of_a_store_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    """What cannot work is refused before anything starts; no message repeats a key or a password."""
    (found,) = _refused(tmp_path, f"[artifacts]\n{text}\n")
    assert problem in found
    assert "AKIA1234" not in found
    assert "hidden-token" not in found
