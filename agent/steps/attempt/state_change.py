"""`set_state`: the values that a succeeded step writes to `state`, rendered once its output is known.

The templates see the step's own result as `output`, and `state` as the step read it. The versions that
they read travel with the outcome: if one has moved when the step is settled, they are rendered again
from the current values. The step itself never runs again for that.
"""

from typing import Any

from agent.core.state_names import MAX_VALUE_BYTES, StateKey
from agent.steps.attempt.prepare import scope_of, visible
from agent.steps.attempt.secrets import Secrets
from agent.steps.types.attempt_input import AttemptInput
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json
from agent.steps.types.state_values import ABSENT, StateChange, StateValues
from agent.steps.types.value_sizes import is_small
from agent.store.db.json_values import NotPlainJsonError, encode
from agent.workflows.templates.templates import TemplateError, render


def render_change(attempt_input: AttemptInput, output: Json, secrets: Secrets) -> StateChange:
    """Return the values that a step with this output writes; raise `DefiniteFailure`. Any thread may call this."""
    step, graph = attempt_input.step, attempt_input.graph
    keys: dict[str, StateKey] = {
        name: (graph.state_scope(name), name) for name in (*step.sets_from, *step.set_state)
    }
    scope = {**scope_of(attempt_input), "output": output}

    def render_from(values: StateValues) -> dict[StateKey, str]:
        read = {name: values[keys[name]] for name in step.sets_from}
        seen = {**scope, "state": visible(read)}
        return {
            keys[name]: _rendered(name, template, seen, secrets)
            for name, template in step.set_state.items()
        }

    read_first = {keys[name]: attempt_input.state.get(name, ABSENT) for name in step.sets_from}
    return StateChange(
        writes=render_from(read_first),
        reads={key: value.version for key, value in read_first.items()},
        render=render_from,
        is_small=is_small(output),
    )


def encode_value(name: str, value: Json, secrets: Secrets) -> str:
    """Return a value as it is stored: without secrets; raise `DefiniteFailure` if it cannot be."""
    try:
        text = encode(secrets.redact_value(value), f"state.{name}")
    except NotPlainJsonError as error:
        raise _refused("bad_state", str(error)) from None
    size = len(text.encode())
    if size > MAX_VALUE_BYTES:
        message = f"state.{name} is {size:,} bytes as JSON, and {MAX_VALUE_BYTES:,} are allowed"
        raise _refused("state_too_large", message)
    return text


def _rendered(name: str, template: Json, scope: dict[str, Any], secrets: Secrets) -> str:
    try:
        value = render(template, scope)
    except TemplateError as error:
        raise _refused("bad_template", f"in set_state.{name}: {error}") from None
    return encode_value(name, value, secrets)


def _refused(code: str, message: str) -> DefiniteFailure:
    return DefiniteFailure(message, code=code, kind="input", may_retry=False)
