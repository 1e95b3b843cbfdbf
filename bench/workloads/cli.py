"""The processor time of everyday commands, beside that of a Python that does nothing.

Each command is a new process, as at a prompt. All run in an environment as users have it: the wheel is installed, and
there are no `.pth` files, which would slow down every start of Python, the bare one most of all. The bare interpreter and the commands take turns, so a
busy machine slows both; the least time of each counts, which other processes disturb the least.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.options import Options
from bench.rows import Row, row
from bench.stores import Stores
from tests.support import installed_wheel

BARE: Final = "python"
DRIVER: Final = "psycopg"
CHANGED: Final = "validate, changed files"
UNCACHED: Final = "validate, first run"
MISTAKE: Final = "validate, one mistake"
_BAD_INPUT: Final = 2
_FILES: Final = 12
_FLOW: Final = """\
name: {name}
description: Fetches a page and reports what it says.
inputs:
  address: {{type: string, default: "https://example.com"}}
steps:
  fetch:
    http: {{get: "{{{{ inputs.address }}}}"}}
    retry: {{max_attempts: 4}}
  count:
    depends_on: [fetch]
    shell: {{argv: [echo, "{{{{ steps.fetch.output.status }}}}"], effect: none}}
  ask:
    depends_on: [count]
    if: steps.count.output.exit_code == 0
    approval: {{message: "Report {{{{ steps.count.output.stdout | trim }}}}?"}}
output: "{{{{ steps.count.output.stdout | trim }}}}"
"""


def run(asked: Options, stores: Stores, _: int) -> Iterator[Row]:
    """Measure on each store, and what does without one once."""
    if "agent" not in asked.engines:
        return
    rounds = 2 if asked.is_quick else 15
    with stores.directory() as installed:
        programs = installed_wheel.install(installed) / "bin"
        for store in asked.stores:
            with stores.directory() as directory, stores.fresh(store) as url:
                bench = _CommandBench(programs, directory, url)
                for case, milliseconds, ratio in bench.measure(store, rounds):
                    yield row(
                        "agent", store, "cli", case=case, cpu_ms=milliseconds, times_bare=ratio
                    )


class _CommandBench:
    """A directory with a configuration, workflow files and one task."""

    def __init__(self, programs: Path, directory: Path, url: str) -> None:
        self._python = str(programs / "python")
        self._program = str(programs / "agent")
        self._directory = directory
        # Users have compiled modules, and none beside the environment's own.
        own = ("AGENT_", "PYTHON")
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(own)}
        self._environment = inherited | {
            "HOME": str(directory),
            "NO_COLOR": "1",
            "XDG_CACHE_HOME": str(directory / "cache"),
        }
        config = directory / "config.toml"
        config.write_text(f'[database]\nurl = "{url}"\n', encoding="utf-8")
        self._files = []
        for number in range(_FILES):
            file = directory / f"flow-{number}.yaml"
            file.write_text(_FLOW.format(name=f"flow_{number}"), encoding="utf-8")
            self._files.append(file.name)
        broken = directory / "broken.yaml"
        text = _FLOW.format(name="broken").replace("max_attempts: 4", "max_attempts: 0")
        broken.write_text(text, encoding="utf-8")
        self._broken = broken.name
        self._agent("db", "upgrade")
        self._agent("run", "--detach", self._files[0])
        self._task = self._agent("tasks", "--json").partition('"id": "')[2].partition('"')[0]

    def measure(self, store: str, rounds: int) -> Iterator[tuple[str, float, float]]:
        """Yield each case with its least milliseconds of processor time, and as multiple of bare Python."""
        agent = [self._program]
        cases = {
            BARE: [self._python, "-c", "pass"],
            "--help": [*agent, "--help"],
            "version": [*agent, "version"],
            "tasks": [*agent, "tasks"],
            "show": [*agent, "show", self._task],
            "approvals": [*agent, "approvals"],
            "pause": [*agent, "pause", self._task],
            "run --detach": [*agent, "run", "--detach", self._files[0]],
            # Files that have not changed are not checked again.
            "validate": [*agent, "validate", *self._files],
            # No reports are kept, but the configuration is known to be right: as after an edit.
            CHANGED: [*agent, "validate", *self._files],
            # Nothing is known of the configuration either.
            UNCACHED: ["env", "XDG_CACHE_HOME=/dev/null", *agent, "validate", *self._files],
            # Pydantic is loaded for what is wrong.
            MISTAKE: [*agent, "validate", self._broken, *self._files[1:]],
        }
        if store == "postgres":
            cases[DRIVER] = [self._python, "-c", "import psycopg"]
        least: dict[str, float] = {}
        # The first round fills the caches of modules and of files.
        for number in range(rounds + 1):
            for case, command in cases.items():
                if case == CHANGED:
                    self._forget_reports()
                seconds = self._cpu_seconds(command, _BAD_INPUT if case == MISTAKE else 0)
                if number > 0:
                    least[case] = min(seconds, least.get(case, seconds))
        for case, seconds in least.items():
            yield case, round(seconds * 1000, 1), round(seconds / least[BARE], 2)

    def _forget_reports(self) -> None:
        for file in (self._directory / "cache" / "agent").glob("validated-*"):
            file.unlink()

    def _cpu_seconds(self, command: list[str], expected: int) -> float:
        process = subprocess.Popen(
            command,
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != expected:
            raise RuntimeError(f"{' '.join(command)} exited with {process.returncode}")
        return usage.ru_utime + usage.ru_stime

    def _agent(self, *arguments: str) -> str:
        done = subprocess.run(
            [self._program, *arguments],
            cwd=self._directory,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout
