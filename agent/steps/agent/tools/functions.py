"""Python functions as tools: signature and docstring give the schema and the description."""

import inspect
from typing import Any, NotRequired, get_type_hints

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError
from typing_extensions import TypedDict

from agent.steps.agent.tool import AgentTool, CoroutineRun, ToolRefusedError, ToolRun
from agent.steps.attempt.context import StepContext
from agent.steps.kinds import python
from agent.steps.kinds.python_modules import Function, find
from agent.steps.types.errors import DefiniteFailure
from agent.steps.types.outcome import Json


def make_tool(name: str, call: str, source_path: str | None, *, is_effect: bool) -> AgentTool:
    """Return the tool."""
    function = find(call, source_path)
    if function.takes_context:
        # Its calls would be numbered among the loop's own, and be missing in a replay.
        raise _bad(f"{call} takes ctx: a tool is journaled as a whole and cannot make calls itself")
    try:
        adapter = arguments_of(function)
        schema = adapter.json_schema()
    except (PydanticSchemaGenerationError, PydanticUserError, TypeError) as exception:
        raise _bad(f"{call}: its signature gives no schema: {exception}") from None
    schema.pop("title", None)

    def start(arguments: dict[str, Json], context: StepContext) -> ToolRun:
        try:
            values = adapter.validate_python(arguments)
        except ValidationError as exception:
            texts = [
                f"{'.'.join(map(str, error['loc'])) or 'arguments'}: {error['msg']}"
                for error in exception.errors(include_url=False, include_input=False)
            ]
            raise ToolRefusedError("; ".join(texts)) from None

        async def perform(_: object) -> Json:
            return await python.start(function, values, context)

        return CoroutineRun(perform)

    text = inspect.getdoc(function.function) or f"the function {call.partition(':')[2]}"
    return AgentTool(name, text, schema, lambda _: is_effect, start, on_unknown="ask")


def arguments_of(function: Function) -> TypeAdapter[dict[str, Any]]:
    """Return the type of a function's arguments, which checks and describes them."""
    try:
        hints = get_type_hints(function.function, include_extras=True)
    except (NameError, TypeError, AttributeError):
        hints = {}
    fields: dict[str, Any] = {}
    parameters = function.signature.parameters.values() if function.signature else ()
    for parameter in parameters:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(f"{parameter.name} is positional-only")
        hint = hints.get(parameter.name, Any)
        fields[parameter.name] = hint if parameter.default is parameter.empty else NotRequired[hint]
    make: Any = TypedDict
    arguments = make("Arguments", fields)
    arguments.__pydantic_config__ = ConfigDict(extra="forbid")
    return TypeAdapter(arguments)


def _bad(text: str) -> DefiniteFailure:
    return DefiniteFailure(text, code="bad_function", kind="input", may_retry=False)
