"""HTTP requests as a tool: only to addresses of the allow list, redirects included."""

from typing import Any

from agent.steps.agent.tool import AgentTool, CoroutineRun, ToolRefusedError, ToolRun
from agent.steps.agent.tools.url_allow_list import may_visit
from agent.steps.attempt.context import StepContext
from agent.steps.http.response import verdict
from agent.steps.spec.agent_config import HttpTool
from agent.steps.types.call_types import Call
from agent.steps.types.errors import UnknownOutcomeError
from agent.steps.types.outcome import TRUNCATED, Json, StepError

_READING = frozenset({"get", "head"})


def make_tool(name: str, config: HttpTool, *, is_effect: bool) -> AgentTool:
    """Return the tool."""
    acts = is_effect and not set(config.methods) <= _READING

    def start(arguments: dict[str, Json], context: StepContext) -> ToolRun:
        method = arguments.get("method", config.methods[0])
        url = arguments["url"]
        if not may_visit(url, config.urls):
            raise ToolRefusedError(f"{url} is not among the allowed addresses: {config.urls}")
        if may_visit(url, list(context.services.limits.own_urls)):
            raise ToolRefusedError(f"{url} is this agent's own API, which no tool of a model uses")
        if "json" in arguments and method in _READING:
            raise ToolRefusedError(f"{method} takes no body")

        async def perform(call: Call) -> Json:
            response = await _send(config, context, call, method, arguments)
            return _result(response, call, f"{method.upper()} {url}")

        return CoroutineRun(perform)

    def acts_with(arguments: dict[str, Json]) -> bool:
        return acts and arguments.get("method", config.methods[0]) not in _READING

    text = f"Make an HTTP request to an address that begins with one of {', '.join(config.urls)}"
    return AgentTool(name, text, _schema(config), acts_with, start, on_unknown="ask")


async def _send(
    config: HttpTool, context: StepContext, call: Call, method: str, arguments: dict[str, Json]
) -> dict[str, Any]:
    # The HTTP client is slow to import, and most agents have other tools.
    from agent.steps.http.exchange import Exchange

    headers = context.secrets.resolve({"headers": config.headers}, context.secret_paths)["headers"]
    own_urls = list(context.services.limits.own_urls)
    exchange = Exchange(
        context.services,
        is_effect=call.is_effect,
        may_visit=lambda url: may_visit(url, config.urls) and not may_visit(url, own_urls),
    )
    values = {"headers": headers, "json": arguments.get("json")}
    return await exchange.send(method, arguments["url"], values, set(config.headers))


def _result(response: dict[str, Any], call: Call, request: str) -> Json:
    """Return the part of a response that the model sees."""
    status = response["status"]
    if call.is_effect and verdict(status, [(200, 299)], is_repeatable=False) == "unknown":
        text = f"{request} was answered with status {status}; whether it acted is unknown"
        raise UnknownOutcomeError(StepError(f"status_{status}", "unknown", text))
    result = {"status": status, "body": response["body"]}
    return {**result, TRUNCATED: True} if response.get(TRUNCATED) else result


def _schema(config: HttpTool) -> dict[str, Json]:
    properties: dict[str, Json] = {
        "url": {"type": "string"},
        "method": {"type": "string", "enum": list(config.methods)},
    }
    if not set(config.methods) <= _READING:
        properties["json"] = {"description": "the body, as a JSON value"}
    return {
        "type": "object",
        "properties": properties,
        "required": ["url"],
        "additionalProperties": False,
    }
