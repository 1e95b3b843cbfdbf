"""The rendered configuration of an attempt, and where it ran, as they are recorded for people.

It is a piece of the attempt's log, in a stream of its own: it travels with the next commit of the worker
and costs no transaction. A configuration without templates is not recorded: the workflow's version has it.
"""

import json
from typing import Final

from agent.steps.attempt.secrets import Secrets
from agent.steps.attempt.services import Services
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.clipping import clipped
from agent.steps.types.outcome import Json

STREAM: Final = "config"
"""The stream of `step_logs` that holds configurations; logs that people read leave it out."""

MAX_CHARACTERS: Final = 16_384
"""Of a recorded configuration: larger values inside it are cut."""


def record_config(
    attempt_input: AttemptInput, services: Services, secrets: Secrets, config: dict[str, Json]
) -> None:
    """Record a rendered configuration, without secrets and within its limit. Any thread may call this."""
    waited, gate = attempt_input.waited, attempt_input.step.approval
    if waited is not None and attempt_input.attempt == 1 and gate is None:
        # The same attempt goes on after a wait: it was recorded when the attempt began.
        return
    shown, is_clipped = clipped(secrets.redact_value(config), MAX_CHARACTERS)
    document = {"config": shown, "clipped": is_clipped}
    text = json.dumps(document, ensure_ascii=False, default=str)
    services.journal.log(attempt_input, STREAM, text)


def record_open_gate(attempt_input: AttemptInput, services: Services) -> None:
    """Record that a step acts without an approval, because the condition of its gate is false."""
    assert attempt_input.step.approval is not None
    text = json.dumps({"open_gate": attempt_input.step.approval["when"]}, ensure_ascii=False)
    services.journal.log(attempt_input, STREAM, text)


def record_executor(
    attempt_input: AttemptInput, services: Services, document: dict[str, Json]
) -> None:
    """Record which executor ran an attempt, and where: its process, or its job."""
    text = json.dumps({"executor": document}, ensure_ascii=False)
    services.journal.log(attempt_input, STREAM, text)
