"""What programs that steps start see of the agent's environment: little, and what is named."""

import json
from typing import Any

import pytest

from agent.steps.attempt.services import Limits
from agent.steps.process.environment import BASIC, environment_of
from agent.steps.process.processes import AGENT, ATTEMPT, STEP
from agent.steps.types.outcome import Failed, Succeeded
from tests.support.agent_loop import answers, trial, uses
from tests.support.attempt import Trial, run

SECRET = "hunter2-of-the-agent"
OF_A_SHELL = {"PWD", "OLDPWD", "SHLVL", "_"}
"""What /bin/sh adds by itself."""


@pytest.fixture(autouse=True)
def agents_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the agent an environment with secrets and with what programs need."""
    monkeypatch.setenv("AGENT_API_TOKEN", SECRET)
    monkeypatch.setenv("AWS_PROFILE", "work")
    monkeypatch.setenv("SSH_AUTH_SOCK", "/run/agent.sock")
    monkeypatch.setenv("LC_TIME", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Europe/Berlin")


def environment_seen(config: dict[str, Any], **options: Any) -> dict[str, str]:
    """Return the environment of a command, by the command itself."""
    config = {"argv": ["env"], "effect": "none", **config}
    outcome = run(Trial("shell", config, **options).attempt())
    assert isinstance(outcome, Succeeded), outcome
    assert isinstance(outcome.output, dict)
    entries = outcome.output["stdout"].splitlines()
    return dict(entry.split("=", 1) for entry in entries)


def test_a_command_sees_the_basic_variables_and_its_own() -> None:
    """No variable of the agent reaches a command by itself but the ones that programs need."""
    seen = environment_seen({"env": {"GIVEN": "yes"}})
    assert SECRET not in seen.values()
    allowed = BASIC | {STEP, ATTEMPT, AGENT, "GIVEN"} | OF_A_SHELL
    assert {name for name in seen if not name.startswith("LC_")} <= allowed
    assert (seen["LC_TIME"], seen["TZ"], seen["GIVEN"]) == ("de_DE.UTF-8", "Europe/Berlin", "yes")
    assert {"PATH", "HOME"} <= set(seen)


def test_a_secret_stays_out_of_what_a_script_prints() -> None:
    """`printenv` in a step that acts writes no secret into its output, its call or its log."""
    made = Trial("shell", {"script": "printenv; printenv >&2"})
    outcome = run(made.attempt())
    assert isinstance(outcome, Succeeded)
    shown = repr(outcome) + repr(made.journal.results) + made.journal.log_text
    assert "PATH=" in shown and SECRET not in shown


def test_inherit_names_what_a_command_gets_besides() -> None:
    """By the step, and for all commands by the configuration; what is not set is no error."""
    config = {"inherit": ["AWS_PROFILE", "NOT_SET_ANYWHERE"]}
    seen = environment_seen(config, limits=Limits(inherit=("SSH_AUTH_SOCK",)))
    assert (seen["AWS_PROFILE"], seen["SSH_AUTH_SOCK"]) == ("work", "/run/agent.sock")
    assert "NOT_SET_ANYWHERE" not in seen and "AGENT_API_TOKEN" not in seen


@pytest.mark.parametrize("name", ["{{ inputs.name }}", "A=B", "", "A B", "*"])
def test_inherit_takes_plain_names_only(name: str) -> None:
    """A template cannot choose a variable: what comes from outside must not read the agent's own."""
    made = Trial("shell", {"argv": ["env"], "inherit": [name]}, inputs={"name": "AGENT_API_TOKEN"})
    outcome = run(made.attempt())
    assert isinstance(outcome, Failed), outcome
    assert "inherit" in outcome.error.message


def test_the_marks_of_a_step_cannot_be_replaced() -> None:
    """Orphans are found by them, whatever a step sets."""
    found = environment_of("step-1", 2, {STEP: "another", ATTEMPT: "9"}, [AGENT])
    assert (found[STEP], found[ATTEMPT]) == ("step-1", "2")


def test_a_models_commands_see_no_more() -> None:
    """The `shell` tool passes on what it names, and no secret of the agent."""
    tool = {"allow": [["printenv"]], "inherit": ["AWS_PROFILE"]}
    made = trial(
        [uses(("run", {"argv": ["printenv"]})), "done"],
        {"run": {"shell": tool, "approve": "never"}},
    )
    assert run(made.attempt()) == Succeeded("done")
    (answer,) = answers(made)
    printed = json.loads(answer["text"])["stdout"]
    assert "AWS_PROFILE=work" in printed and SECRET not in printed
