"""The `shell` kind: a program or a script, as one journaled effect unless it only reads.

Values reach a script through its environment only; they are never put into its text. Of the agent's
own environment a command gets only what `environment` passes on. An exit code is an answer; one other
than 0 is a failure. It does not prove that nothing happened: the step of an effect fails with it,
unless `retry_exit_codes` lists it. A command that a signal ended before it exited is unknown.
"""

import asyncio
import os
import shutil
import signal
from typing import Any, Final

from agent.steps.attempt.context import StepContext
from agent.steps.process.environment import environment_of
from agent.steps.process.gated_process import GatedProcess, spawn
from agent.steps.process.output_capture import OutputCapture, ending, with_clause
from agent.steps.process.resource_limits import set_limits
from agent.steps.spec.configs import ShellConfig
from agent.steps.types.call_types import Process
from agent.steps.types.errors import DefiniteFailure, OutOfDescriptorsError, UnknownOutcomeError
from agent.steps.types.outcome import TRUNCATED, Json, Outcome, StepError, Succeeded

DRAIN_SECONDS: Final = 1.0
"""How long a command's output may stay open after its exit, before its children are killed."""

HURRIED_SECONDS: Final = 0.5
"""The grace time when the worker itself is about to end."""


async def run(config: ShellConfig, context: StepContext) -> Outcome:
    """Run the command; the output is its exit code and its text."""
    shell = Shell(config, context)
    try:
        if config.effect == "none":
            await shell.prepare()
            return Succeeded(await shell.perform())
        body = config.model_dump(
            by_alias=True, exclude_defaults=True, exclude={"retry_exit_codes", "code"}
        )
        request = context.request("shell", body, on_unknown="ask")
        answer = await context.perform(request, lambda _: shell.perform(), shell.prepare)
        return Succeeded(answer.response, idempotency_key=answer.idempotency_key)
    except OutOfDescriptorsError as error:
        # Only of a command without an intent; for others `perform` has ended the attempt.
        return error.outcome()
    except asyncio.CancelledError:
        await shell.close(is_hurried=not context.is_interrupted())
        raise
    finally:
        await shell.close()


class Shell:
    """One command of one attempt."""

    def __init__(
        self, config: ShellConfig, context: StepContext, *, accepts_any_exit_code: bool = False
    ) -> None:
        self._config = config
        self._context = context
        self._accepts_any_exit_code = accepts_any_exit_code
        self._command: GatedProcess | None = None
        self._is_closed = False

    async def prepare(self) -> Process:
        """Start the command behind its gate."""
        config, context = self._config, self._context
        own_env = context.secrets.resolve({"env": config.env}, context.secret_paths)["env"]
        inherit = (*context.services.limits.inherit, *config.inherit)
        env = environment_of(context.step_id, context.attempt, own_env, inherit)
        if config.argv is not None:
            argv = list(config.argv)
            program = shutil.which(argv[0], path=env.get("PATH", os.defpath))
            if "/" not in argv[0] and program is None:
                raise DefiniteFailure(
                    f"there is no program {argv[0]!r} on the PATH",
                    code="no_program",
                    kind="input",
                    may_retry=False,
                )
        else:
            assert config.script is not None
            argv = ["/bin/sh", "-e", "-c", config.script, "script"]
        self._command = spawn(argv, env, self._directory(), context.services.threads)
        if context.command_limits:
            # It waits at its gate: the command that replaces it inherits them.
            set_limits(self._command.process.id, context.command_limits)
        return self._command.process

    def _directory(self) -> str | None:
        """Return where the command runs: `cwd` below the configuration's directory, or that itself."""
        base, cwd = self._context.services.limits.directory, self._config.cwd
        return cwd if base is None else os.path.join(base, cwd or "")  # noqa: PTH118 - a text

    async def perform(self) -> Json:
        """Open the gate and wait for the command to end."""
        command, context = self._command, self._context
        assert command is not None
        limit = context.services.limits.output_bytes // 4
        out = OutputCapture(limit, context.secrets, lambda text: context.log_text("stdout", text))
        err = OutputCapture(limit, context.secrets, lambda text: context.log_text("stderr", text))
        stdout_reader, stderr_reader = await command.readers()
        await command.open_gate(self._config.stdin or "")
        readers = [
            asyncio.ensure_future(out.read(stdout_reader)),
            asyncio.ensure_future(err.read(stderr_reader)),
        ]
        try:
            exit_code = await command.wait()
            # Children that outlive the command would keep its output open.
            _, still_open = await asyncio.wait(readers, timeout=DRAIN_SECONDS)
            if still_open:
                await command.end(context.services.limits.kill_grace_seconds)
                await asyncio.wait(readers, timeout=DRAIN_SECONDS)
        finally:
            for reader in readers:
                reader.cancel()
            stdout, stderr = out.finish(), err.finish()
        if exit_code != 0 and not (self._accepts_any_exit_code and exit_code > 0):
            raise self._failure(exit_code, ending(err.tail.strip() or out.tail))
        output: dict[str, Any] = {"exit_code": exit_code, "stdout": stdout, "stderr": stderr}
        if out.is_cut or err.is_cut:
            output[TRUNCATED] = True
            context.log(
                f"the output is cut: stdout and stderr keep {limit:,} bytes each"
                " (a quarter of [steps] output_bytes); this log has more of it"
            )
        return output

    def _failure(self, exit_code: int, detail: str) -> Exception:
        """Return the failure of a command: an exit code is its own answer, a signal is none."""
        if exit_code > 0:
            text = f"the command ended with exit code {exit_code}{detail}"
            may_retry = self._config.effect == "none" or exit_code in self._config.retry_exit_codes
            if not may_retry:
                text = with_clause(
                    text,
                    "it may have had an effect, so it is not retried:"
                    f" `retry_exit_codes: [{exit_code}]` or `effect: none` allows that",
                )
            return DefiniteFailure(text, code="exit_code", may_retry=may_retry)
        text = f"the command was ended by signal {-exit_code}{detail}"
        cpu_seconds = self._context.command_limits.get("cpu_seconds")
        if exit_code == -signal.SIGXCPU and cpu_seconds is not None:
            text = f"the command used more processor time than its limit of {cpu_seconds} s{detail}"
        if self._config.effect == "none":
            return DefiniteFailure(text, code="signal", kind="crash")
        return UnknownOutcomeError(
            StepError("signal", "unknown", with_clause(text, "whether it took effect is unknown"))
        )

    async def close(self, *, is_hurried: bool = False) -> None:
        """End every process of the command, however the attempt ended."""
        if self._command is None or self._is_closed:
            return
        self._is_closed = True
        grace_seconds = self._context.services.limits.kill_grace_seconds
        if is_hurried:
            grace_seconds = min(grace_seconds, HURRIED_SECONDS)
        try:
            await self._command.end(grace_seconds)
        except BaseException:
            self._command.kill()
            raise
