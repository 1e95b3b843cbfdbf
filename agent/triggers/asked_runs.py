"""`catch_up: ask`: a task that asks a person which missed runs to start.

Its workflow is built in. The question is an ordinary `input` step, so it reaches people as every other
question does. The step after it starts the runs: each under the key of its instant, so that a repeated
attempt starts nothing twice.

This module keeps its name: tasks on record call `agent.triggers.asked_runs:start`.
"""

from functools import cache
from typing import Any, Final

# Registers the kinds of steps that the workflow has.
from agent.steps.attempt.context import StepContext
from agent.steps.types.errors import DefiniteFailure
from agent.store.db.json_values import decode
from agent.store.engine.trigger_rows import TriggerRow
from agent.tasks.rules.creation import Submission
from agent.triggers.local_time import shown_time, zone_of_spec
from agent.workflows.compile.compiler import compile_text
from agent.workflows.graph import Graph

Json = Any

WORKFLOW: Final = "_catch_up"
_LATEST, _ALL, _NONE = "latest", "all", "none"

_TEXT: Final = f"""\
name: {WORKFLOW}
description: asks which missed runs of a schedule to start
inputs:
  trigger: string
  message: string
  instants: {{type: array}}
steps:
  ask:
    input:
      message: "{{{{ inputs.message }}}}"
      choices: [{_LATEST}, {_ALL}, {_NONE}]
  start:
    depends_on: [ask]
    if: steps.ask.output.value != "{_NONE}"
    python:
      call: agent.triggers.asked_runs:start
      with:
        trigger: "{{{{ inputs.trigger }}}}"
        instants: "{{{{ inputs.instants }}}}"
        answer: "{{{{ steps.ask.output.value }}}}"
"""


@cache
def workflow() -> Graph:
    """Return the built-in workflow."""
    return compile_text(_TEXT, "catch-up")


def question(row: TriggerRow, count: int, first: int, last: int, instants: list[int]) -> Submission:
    """Return the task that asks about missed runs; `instants` are those that can still start."""
    return Submission(
        graph=workflow(),
        input={
            "trigger": row.id,
            "message": _message(row, count, (first, last), len(instants)),
            "instants": list(instants),
        },
        trigger={"kind": "catch_up", "trigger": row.id},
        source=_TEXT,
    )


def _message(row: TriggerRow, count: int, span: tuple[int, int], startable: int) -> str:
    """Return the question, with times in the schedule's zone."""
    zone = zone_of_spec(decode(row.spec))
    first, last = (shown_time(instant, zone) for instant in span)
    if count == 1:
        return f"{row.id} missed its run of {last}. Start it now?"
    more = "" if startable == count else f" All means the newest {startable}."
    return f"{row.id} missed {count:,} runs, from {first} to {last}. Which should start now?{more}"


async def start(
    ctx: StepContext, trigger: str, instants: list[int], answer: str
) -> dict[str, Json]:
    """Start the missed runs that a person chose."""
    if ctx.services.start_missed is None:
        raise DefiniteFailure("only a running daemon (`agent up`) starts missed runs")
    chosen = instants if answer == _ALL else instants[-1:]
    return {"tasks": await ctx.services.start_missed(trigger, chosen)}
