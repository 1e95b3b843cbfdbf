"""Secrets of every source in real commands: read, redacted, listed and checked, never shown."""

import base64
import json
import sys
from pathlib import Path

import pytest

from tests.support.cli import Cli

EXEC, KEYRING, DOTENV = "exec-hunter2-value", "keyring-hunter2-value", "dotenv-hunter2-value"
VALUES = (EXEC, KEYRING, DOTENV)

CONFIG = """
[secrets]
inherit = ["COUNT_FILE"]
timeout_seconds = 5.0
[secrets.exec]
vault = ["sh", "-c", "echo run >> \\"$COUNT_FILE\\"; cat vault"]
fails = ["sh", "-c", "echo vault is sealed >&2; exit 2"]
"""

WORKFLOW = """
name: leaky
inputs:
  given: {type: string, default: nothing}
steps:
  early:
    shell: {script: 'cat vault keyring.json .env | base64 -w0; cat vault keyring.json .env'}
  use:
    depends_on: [early]
    shell:
      script: 'printf "%s|%s|%s|%s|%s" "$A" "$B" "$C" "${ONLY_HERE-unset}" "${#A}-${#B}-${#C}"'
      env: {A: "exec:vault", B: "keyring:agent/bot", C: "env:ONLY_HERE"}
  again:
    depends_on: [use]
    shell: {script: 'printf "%s" "$A" | wc -c', env: {A: "exec:vault"}}
  data:
    depends_on: [use]
    shell: {script: 'printf "%s" "$D"', env: {D: "{{ inputs.given }}"}}
"""


@pytest.fixture
def place(cli: Cli) -> Cli:
    """Return an agent's directory with a secret in each source."""
    cli("init")
    cli.environment |= {
        "PYTHON_KEYRING_BACKEND": "tests.support.keyring_backend.FileKeyring",
        "TEST_KEYRING": str(cli.directory / "keyring.json"),
        "COUNT_FILE": str(cli.directory / "count"),
    }
    (cli.directory / "vault").write_text(f"{EXEC}\n")
    (cli.directory / "keyring.json").write_text(json.dumps({"agent bot": KEYRING}))
    (cli.directory / "config.toml").write_text(CONFIG)
    (cli.directory / ".env").touch(mode=0o600)
    (cli.directory / ".env").write_text(f"ONLY_HERE={DOTENV}\n")
    for workflow in (cli.directory / "workflows").glob("*.yaml"):
        workflow.unlink()
    (cli.directory / "workflows" / "leaky.yaml").write_text(WORKFLOW)
    return cli


def test_steps_get_secrets_and_write_none(place: Cli) -> None:
    """Of every source: known before a step could print them, also encoded, and read once."""
    result = place("run", "leaky", "--wait", "--json")
    steps = {step["name"]: step["output"] for step in result.json["steps"]}
    lengths = "-".join(str(len(value)) for value in VALUES)
    assert steps["use"]["stdout"] == f"[redacted]|[redacted]|[redacted]|unset|{lengths}"
    assert steps["again"]["stdout"].strip() == str(len(EXEC))
    assert steps["early"]["stdout"].count("[redacted]") == 6, "before a step has used any"
    written = result.out + place("events").out + place("show", result.json["id"]).out
    for path in (place.directory / "data").rglob("*"):
        written += path.read_bytes().decode("latin-1") if path.is_file() else ""
    for value in VALUES:
        assert value not in written
        assert base64.b64encode(value.encode()).decode()[:12] not in written
    assert (place.directory / "count").read_text() == "run\n", "one prompt for all steps"


def test_the_result_of_a_template_names_no_secret(place: Cli) -> None:
    """A value that looks like a reference is data, whatever source it names."""
    for given in ("exec:vault", "keyring:agent/bot", "env:ONLY_HERE"):
        result = place("run", "leaky", "-i", f"given={given}", "--wait", "--json")
        steps = {step["name"]: step["output"] for step in result.json["steps"]}
        assert steps["data"]["stdout"] == given


@pytest.mark.parametrize(
    ("keyring", "problem"),
    [
        ("locked", "the keyring is locked"),
        ("empty", "the keyring has no entry 'bot' of service 'agent'"),
        ("hangs", "was not read within 1 s"),
    ],
)
def test_a_keyring_without_the_secret_fails_the_step(
    place: Cli, keyring: str, problem: str
) -> None:
    """Definitely, with a message that says what to do; a prompt that is never answered too."""
    if keyring == "empty":
        (place.directory / "keyring.json").write_text("{}")
    else:
        place.environment["TEST_KEYRING"] = keyring
    place.environment["AGENT_SECRETS__TIMEOUT_SECONDS"] = "1"
    result = place("run", "leaky", "--wait", "--json", code=1)
    use = next(step for step in result.json["steps"] if step["name"] == "use")
    assert use["error"]["code"] == "secret_missing"
    assert problem in use["error"]["message"]
    assert use["attempt"] == 1


def test_a_system_without_a_keyring(place: Cli) -> None:
    """The library's own backend for that: the message says so."""
    place.environment["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"
    found = place("secrets", "--check", "--json", code=3).json
    entry = next(entry for entry in found if entry["reference"] == "keyring:agent/bot")
    assert "this system has no keyring" in entry["problem"]


def test_a_missing_library_is_named(place: Cli) -> None:
    """With the command that installs it."""
    broken = place.directory / "shadow" / "keyring"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('gone')")
    place.environment["PYTHONPATH"] = f"{broken.parent}:{place.environment['PYTHONPATH']}"
    place.program = [sys.executable, "-m", "agent.cli"]
    found = place("secrets", "--check", "--json", code=3).json
    entry = next(entry for entry in found if entry["reference"] == "keyring:agent/bot")
    assert "`python -m pip install keyring`" in entry["problem"]


def test_references_are_listed_with_their_source(place: Cli) -> None:
    """Without reading what could ask a person; --check reads it; values are never shown."""
    found = {entry["reference"]: entry for entry in place("secrets", "--json").json}
    assert set(found) == {"exec:vault", "keyring:agent/bot", "env:ONLY_HERE"}
    assert found["exec:vault"]["used_by"] == [
        "workflow leaky, step use: env.A",
        "workflow leaky, step again: env.A",
    ]
    assert [found[name]["is_found"] for name in sorted(found)] == [True, None, None]
    assert found["env:ONLY_HERE"]["resolves_from"].endswith("/.env")
    assert found["exec:vault"]["resolves_from"] == "the command sh"
    assert not (place.directory / "count").exists(), "no command ran"
    checked = place("secrets", "--check")
    assert checked.out.count("✓") == 3
    place.environment["ONLY_HERE"] = "the real one wins"
    assert "env:ONLY_HERE  from the environment" in place("secrets").out
    assert "hunter2" not in checked.out


def test_doctor_reports_what_leads_to_no_secret(place: Cli) -> None:
    """References of every source, each with its users, and no values."""
    assert "✓ secrets: 3 references: each leads to a secret" in place("doctor").out
    (place.directory / ".env").write_text("OTHER=hunter2\n")
    (place.directory / "keyring.json").write_text("{}")
    text = WORKFLOW.replace('A: "exec:vault", B', 'A: "exec:fails", Z: "exec:unknown", B')
    (place.directory / "workflows" / "leaky.yaml").write_text(text)
    out = place("doctor").out
    assert "! secrets: the environment variable ONLY_HERE is not set (used by workflow leaky" in out
    assert "! secrets: exec:fails: sh ended with exit code 2: vault is sealed" in out
    assert "! secrets: exec:unknown: the configuration has no such command" in out
    assert "! secrets: the keyring has no entry 'bot'" in out
    assert "hunter2" not in out


def test_a_file_that_others_can_read_or_break_is_reported(place: Cli) -> None:
    """By doctor, and by the step that needs it; the line is named, its text is not."""
    file = place.directory / ".env"
    file.chmod(0o644)
    assert f"chmod 600 {file}" in place("doctor", code=3).out
    result = place("run", "leaky", "--wait", "--json", code=1)
    use = next(step for step in result.json["steps"] if step["name"] == "use")
    assert "is not used: other users can read it" in use["error"]["message"]
    file.chmod(0o600)
    file.write_text("OK=1\nhunter2 is my password\n")
    assert f"{file}: line 2: expected NAME=value" in place("doctor", code=3).out


def test_the_agent_does_not_run_beside_a_file_that_others_write(place: Cli) -> None:
    """It could be anyone's secrets: as for other files that give power."""
    (place.directory / ".env").chmod(0o606)
    result = place("run", "leaky", "--wait", code=3)
    assert "can be written by every user" in result.err


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ('[secrets]\nexec = { a = "op read hunter2" }\n', "secrets.exec.a: should be a valid list"),
        ("[secrets]\nexec = { a = [] }\n", "secrets.exec.a: "),
        ('[secrets]\nexec = { "a b" = ["x"] }\n', "secrets.exec.a b"),
        ("[secrets]\ncache_seconds = 0\n", "secrets.cache_seconds: "),
    ],
)
def test_a_wrong_configuration_is_refused(cli: Cli, config: str, problem: str) -> None:
    """With the key that is wrong; a text in the place of a command is not repeated."""
    Path(cli.directory / "config.toml").write_text(config)
    result = cli("secrets", code=2)
    assert problem in result.err
    assert "hunter2" not in result.err
