import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from agent.core.state_machine import CallStatus
from agent.core.waits import UnknownCall
from agent.steps.process import processes
from agent.steps.types.outcome import Failed, Json, Retry, Returned, Succeeded, Waiting
from tests.support.attempt import Trial, run, skip_time, until


def shell(config: dict[str, Json], **more: Any) -> Trial:
    """Return a trial of a `shell` step."""
    return Trial("shell", config, **more)


def output_of(trial: Trial) -> dict[str, Json]:
    """Run one attempt that must succeed and return its output."""
    outcome = run(trial.attempt())
    assert isinstance(outcome, Succeeded), outcome
    assert isinstance(outcome.output, dict)
    return outcome.output


def pids_in(path: Path) -> list[int]:
    """Read the process ids that a script wrote down."""
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_a_program_gets_its_arguments_as_they_are() -> None:
    """No shell reads them: numbers and the rest of JSON become text, and nothing is expanded."""
    values = ["{{ inputs.n }}", "{{ inputs.yes }}", "{{ inputs.list }}", "{{ inputs.map }}"]
    trial = shell(
        {"argv": ["printf", "%s|", "a b", "$HOME", *values]},
        inputs={"n": 3, "yes": True, "list": ["ä", 1], "map": {"a": None}},
    )
    assert output_of(trial)["stdout"] == 'a b|$HOME|3|true|["ä", 1]|{"a": null}|'


def test_a_script_gets_values_only_through_its_environment() -> None:
    """Templates are rendered in `env` and never in the script's text."""
    trial = shell(
        {"script": "echo \"$NAME\"; echo '{{ inputs.n }}'", "env": {"NAME": "{{ inputs.n }}"}},
        inputs={"n": "$(touch pwned); `id`"},
    )
    assert output_of(trial)["stdout"] == "$(touch pwned); `id`\n{{ inputs.n }}\n"


def test_standard_input_and_directory(tmp_path: Path) -> None:
    """The command reads its input, however long, and runs in its `cwd`."""
    text = "line\n" * 100_000
    trial = shell({"script": "pwd; wc -c", "stdin": text, "cwd": str(tmp_path)})
    assert output_of(trial)["stdout"].split() == [str(tmp_path.resolve()), str(len(text))]
    ignored = shell({"argv": ["true"], "stdin": text})
    assert output_of(ignored)["exit_code"] == 0


def test_the_process_is_on_record_before_the_command_begins(tmp_path: Path) -> None:
    """The child waits at its gate: the intent names it, and nothing has happened yet."""
    mark = tmp_path / "mark"
    trial = shell({"argv": ["touch", str(mark)]})
    seen = []

    def check(intent: Any) -> None:
        is_there = processes.is_running(intent.process_id, intent.process_started)
        seen.append((is_there, mark.exists(), intent.settles_step))

    trial.journal.on_intend = check
    outcome = run(trial.attempt())
    assert seen == [(True, False, True)]
    assert mark.exists()
    _, intent = trial.journal.intents[0]
    assert isinstance(outcome, Succeeded)
    assert outcome.idempotency_key == intent.idempotency_key
    assert trial.journal.statuses == [CallStatus.SUCCEEDED]


def test_a_command_that_may_not_begin_never_does(tmp_path: Path) -> None:
    """An intent that came too late leaves the gate closed, and nothing behind."""
    mark = tmp_path / "mark"
    trial = shell({"argv": ["touch", str(mark)]})
    trial.journal.on_intend = lambda _: trial.clock.advance(3600)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert outcome.error.code == "not_sent"
    assert not mark.exists()
    _, intent = trial.journal.intents[0]
    assert intent.process_id is not None
    assert not processes.group_runs(intent.process_id)


def test_a_gate_whose_worker_died_lets_nothing_through(tmp_path: Path) -> None:
    """When the pipe closes without the word, the command never begins."""
    mark = tmp_path / "mark"

    async def main() -> None:
        from agent.core.thread_bridge import UnboundedThreads
        from agent.steps.process.gated_process import spawn

        command = spawn(["touch", str(mark)], dict(os.environ), None, UnboundedThreads())
        assert command._gate is not None
        os.close(command._gate)
        command._gate = None
        assert await command.wait() == 125
        await command.end(0)

    run(main())
    assert not mark.exists()


FAILING = {"script": "echo one; echo no money >&2; exit 7"}


def test_a_read_that_fails_is_tried_again() -> None:
    """Any code but 0 is a failure that may be retried, with the last words of the command."""
    trial = shell({**FAILING, "effect": "none"})
    outcome = run(trial.attempt())
    assert isinstance(outcome, Retry)
    assert not outcome.is_unknown
    assert outcome.error.message == "the command ended with exit code 7: no money"
    assert trial.journal.statuses == []
    assert ("stderr", "no money") in trial.journal.logs


def test_an_error_has_the_last_five_lines_of_the_command() -> None:
    """The last line of many commands only says that there were errors; what follows has a line of its own."""
    script = 'for n in 1 2 3 4 5 6; do echo "line $n" >&2; echo >&2; done; exit 7'
    outcome = run(shell({"script": script}).attempt())
    assert isinstance(outcome, Failed)
    first, *rest = outcome.error.message.splitlines()
    assert first == "the command ended with exit code 7:"
    assert rest[:-1] == [f"line {number}" for number in range(2, 7)]
    assert rest[-1].startswith("it may have had an effect, so it is not retried:")


@pytest.mark.parametrize("on_unknown", [None, "retry", "ask"])
def test_an_effect_that_fails_is_not_tried_again(on_unknown: str | None) -> None:
    """An exit code does not prove that nothing happened; `on_unknown` is for missing answers only."""
    options = {} if on_unknown is None else {"on_unknown": on_unknown}
    trial = shell({**FAILING, "retry_exit_codes": [8]}, options=options)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert "exit code 7: no money; it may have had an effect" in outcome.error.message
    assert "`retry_exit_codes: [7]` or `effect: none` allows that" in outcome.error.message
    assert trial.journal.statuses == [CallStatus.FAILED]
    (result,) = trial.journal.results
    assert result.error is not None
    assert result.error.is_final


def test_exit_codes_that_allow_a_retry() -> None:
    """A code of `retry_exit_codes` says that nothing was done: another attempt follows it."""
    env = {"MORE": "{{ task.attempt }}"}
    trial = shell({"script": "exit $((74 + MORE))", "env": env, "retry_exit_codes": [75, 76]})
    assert [type(run(trial.attempt())) for _ in range(3)] == [Retry, Retry, Failed]
    assert trial.journal.statuses == [CallStatus.FAILED] * 3
    assert all("retry_exit_codes" not in intent.request for _, intent in trial.journal.intents)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"retry_exit_codes": [0]}, "must be at least 1"),
        ({"retry_exit_codes": [256]}, "must be at most 255"),
        ({"retry_exit_codes": [True]}, "must be a number"),
        ({"retry_exit_codes": [75], "effect": "none"}, "is for commands with an effect"),
    ],
)
def test_exit_codes_that_are_refused(config: dict[str, Json], message: str) -> None:
    """0 is success, codes end at 255, and a command without effect is retried in any case."""
    outcome = run(shell({"argv": ["true"], **config}).attempt())
    assert isinstance(outcome, Failed)
    assert message in outcome.error.message


def test_a_script_stops_at_its_first_error() -> None:
    """What fails in the middle is not hidden by what comes after."""
    trial = shell({"script": "false\necho went on"})
    assert isinstance(run(trial.attempt()), Failed)
    assert "went on" not in trial.journal.log_text


def test_a_command_ended_by_a_stranger_is_unknown() -> None:
    """A signal is no answer: an effect may have happened, a read is simply tried again."""
    outcome = run(shell({"script": "kill -9 $$"}).attempt())
    assert isinstance(outcome, Retry)
    assert outcome.is_unknown
    repeatable = run(shell({"script": "kill -9 $$", "effect": "none"}).attempt())
    assert isinstance(repeatable, Retry)
    assert not repeatable.is_unknown


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"argv": ["no-such-program-here"]}, "no-such-program-here"),
        ({"argv": ["true"], "cwd": "/no/such/directory"}, "/no/such/directory"),
        ({"argv": ["true"], "env": {"TOKEN": "env:NO_SUCH_VARIABLE"}}, "NO_SUCH_VARIABLE"),
        ({"argv": ["true"], "env": {"TOKEN": "file:/no/such/file"}}, "/no/such/file"),
    ],
)
def test_a_command_that_cannot_be_started_is_not_retried(
    config: dict[str, Json], message: str
) -> None:
    """A missing program, directory or secret is the definition's mistake; no intent is left."""
    trial = shell(config)
    outcome = run(trial.attempt())
    assert isinstance(outcome, Failed)
    assert message in outcome.error.message
    assert trial.journal.intents == []


@pytest.mark.parametrize("how", ["timeout", "cancel", "task"])
def test_the_whole_group_ends_with_the_attempt(how: str, tmp_path: Path) -> None:
    """A timeout, a cancel and the engine's last resort end grandchildren too, stubborn ones also."""
    pids = tmp_path / "pids"
    script = (
        "trap '' TERM; sh -c 'trap \"\" TERM; echo $$ >> \"$PIDS\"; sleep 600' &"
        ' echo $$ >> "$PIDS"; wait; sleep 600'
    )

    async def main() -> None:
        trial = shell(
            {"script": script, "env": {"PIDS": str(pids)}},
            options={"timeout_seconds": 30.0},
        )
        attempt = asyncio.create_task(trial.attempt())
        await until(lambda: len(pids_in(pids)) == 2)
        if how == "timeout":
            skip_time(30)
        if how == "cancel":
            trial.signals.stop_for("canceled")
        if how == "task":
            # As the worker does: it asks first, and cancels what has not ended in time.
            trial.signals.stop_for("shutdown")
            attempt.cancel()
            with pytest.raises(asyncio.CancelledError):
                await attempt
        else:
            outcome = await attempt
            assert isinstance(outcome, Retry)
            assert outcome.is_unknown
        assert trial.journal.statuses == [CallStatus.UNKNOWN]
        _, intent = trial.journal.intents[0]
        assert intent.process_id is not None
        group = intent.process_id
        await until(lambda: not processes.group_runs(group))
        assert [processes.start_time(pid) for pid in pids_in(pids)] == [None, None]

    run(main())


def test_a_stopped_read_is_given_back() -> None:
    """A command that has no effect is ended and the step given back."""

    async def main() -> None:
        trial = shell({"script": "echo begun; sleep 600", "effect": "none"})
        attempt = asyncio.create_task(trial.attempt())
        await until(lambda: "begun" in trial.journal.log_text)
        trial.signals.stop_for("shutdown")
        assert await attempt == Returned("shutdown")

    run(main())


def test_children_left_behind_end_with_the_command(tmp_path: Path) -> None:
    """A command's own end is the step's: what it left in the background is ended."""
    pids = tmp_path / "pids"
    trial = shell(
        {"script": 'sleep 600 & echo $! > "$PIDS"; echo done', "env": {"PIDS": str(pids)}}
    )
    assert output_of(trial)["stdout"] == "done\n"
    (pid,) = pids_in(pids)
    run(until(lambda: processes.start_time(pid) is None))


def test_an_unknown_command_asks_and_is_not_run_again(tmp_path: Path) -> None:
    """The default of `shell` is to ask; the operator's answer is the step's output."""
    count = tmp_path / "count"
    trial = shell({"script": 'echo x >> "$COUNT"; kill -9 $$', "env": {"COUNT": str(count)}})
    run(trial.attempt())
    trial.pass_expiry()
    _, intent = trial.journal.intents[0]
    assert run(trial.attempt()) == Waiting(UnknownCall(intent.call_id))
    trial.journal.resolve_by_person(CallStatus.SUCCEEDED, {"exit_code": 0})
    outcome = run(trial.attempt())
    assert outcome == Succeeded({"exit_code": 0}, idempotency_key=intent.idempotency_key)
    assert count.read_text() == "x\n"


def test_output_is_streamed_bounded_and_made_storable() -> None:
    """The log gets lines as they come; what is kept is cut and says so; NUL and bad bytes go."""
    trial = shell({"script": r"printf 'a\000b\377\n'; printf 'no end'"})
    assert output_of(trial)["stdout"] == "a\ufffdb\ufffd\nno end"
    assert trial.journal.log_text == "a\ufffdb\ufffd\nno end"
    long = shell({"script": "head -c 3000000 /dev/zero | tr '\\0' x"})
    output = output_of(long)
    assert output["truncated"] is True
    assert set(output["stdout"]) == {"x"}
    assert len(output["stdout"]) == long.limits.output_bytes // 4


def test_secrets_reach_the_command_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """References are resolved at execution; logs, outputs, errors and requests do not show them."""
    monkeypatch.setenv("PAY_TOKEN", "s3cr3t-token")
    key = tmp_path / "key"
    key.write_text("first-line\nsecond-line\n")
    env: dict[str, Json] = {"TOKEN": "env:PAY_TOKEN", "KEY": f"file:{key}"}
    # Cut in two writes, on a line longer than the log takes at once.
    script = (
        'test "${#TOKEN}" = 12; test "${#KEY}" = 22; head -c 9000 /dev/zero | tr "\\0" x;'
        'printf "%s" "$TOKEN" | head -c 5; sleep 0.3; printf "%s\\n" "$TOKEN" | tail -c +6;'
        'echo "$KEY"; echo "Error: $TOKEN" >&2; '
    )
    trial = shell({"script": script, "env": env})
    output = output_of(trial)
    failing = shell({"script": script + "exit 3", "env": env})
    outcome = run(failing.attempt())
    assert isinstance(outcome, Failed)
    assert "exit code 3: Error: [redacted];" in outcome.error.message
    for written in (repr(output), repr(outcome), *map(_everything, (trial, failing))):
        for secret in ("s3cr3t-token", "first-line", "second-line"):
            assert secret not in written
    assert trial.journal.intents[0][1].request["env"] == env
    assert "[redacted]" in output["stdout"]


def test_data_cannot_name_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a reference that the definition itself holds is resolved."""
    monkeypatch.setenv("PAY_TOKEN", "s3cr3t-token")
    trial = shell(
        {"script": 'echo "$WORD"', "env": {"WORD": "{{ inputs.word }}"}},
        inputs={"word": "env:PAY_TOKEN"},
    )
    assert output_of(trial)["stdout"] == "env:PAY_TOKEN\n"


def _everything(trial: Trial) -> str:
    return repr([trial.journal.intents, trial.journal.results, trial.journal.logs])


def test_remaining_processes_of_a_command_are_recognized(tmp_path: Path) -> None:
    """A group is known by its leader's identity, and by its members' marks once that has ended."""
    pids = tmp_path / "pids"

    async def main() -> None:
        from agent.core.thread_bridge import UnboundedThreads
        from agent.steps.process.gated_process import spawn

        env = {**os.environ, **processes.marks("step-1", 1)}
        script = 'sleep 600 & echo $! >> "$0"; wait'
        command = spawn(["/bin/sh", "-c", script, str(pids)], env, None, UnboundedThreads())
        await command.open_gate("")
        await until(lambda: len(pids_in(pids)) == 1)
        pid, started = command.process.id, command.process.started
        assert not processes.is_left_over(pid, "another start")
        assert processes.is_left_over(pid, started)
        await asyncio.to_thread(processes.end_groups, [pid])
        assert await command.wait() in (-signal.SIGTERM, -signal.SIGKILL)
        await until(lambda: not processes.group_runs(pid))
        assert not processes.is_left_over(pid, started)
        await command.end(0)

        pids.unlink()
        script = 'sleep 600 & echo $! >> "$0"'
        left = spawn(["/bin/sh", "-c", script, str(pids)], env, None, UnboundedThreads())
        await left.open_gate("")
        await left.wait()
        pid = left.process.id
        assert processes.group_runs(pid)
        assert processes.is_left_over(pid, left.process.started)
        # It is not an orphan: the agent that started it, this process, is running.
        assert pid not in [orphan.group for orphan in processes.orphans()]
        await asyncio.to_thread(processes.end_groups, [pid])
        await until(lambda: not processes.group_runs(pid))
        await left.end(0)

    run(main())
    assert not processes.is_left_over(os.getpgrp(), "")
    assert not processes.is_left_over(1, "")
