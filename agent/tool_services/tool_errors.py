"""Errors of commands and queries, as failures that a model is shown."""

from collections.abc import Iterator
from contextlib import contextmanager

from agent.steps.types.errors import DefiniteFailure
from agent.store.db.json_values import NotPlainJsonError
from agent.tasks.errors import NotFoundError, RefusedError
from agent.tasks.read_models.task_documents import AmbiguousIdError
from agent.tasks.submission import TooManyStepsError
from agent.workflows.compile.inputs import InputError


@contextmanager
def tool_errors() -> Iterator[None]:
    """Turn a refusal into a definite failure: nothing happened, and the model gets the reason."""
    try:
        yield
    except (
        NotFoundError,
        RefusedError,
        AmbiguousIdError,
        InputError,
        TooManyStepsError,
        NotPlainJsonError,
    ) as error:
        raise DefiniteFailure(str(error), code="refused", may_retry=False) from None
