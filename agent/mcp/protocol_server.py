"""The server of the protocol: lists tools and resources, and runs them for the caller of each request."""

from collections.abc import Callable, Mapping
from typing import Any, Final

import mcp_types as types
import structlog
from mcp.server import NotificationOptions, Server, ServerRequestContext
from mcp.server.subscriptions import ListenHandler
from mcp.shared.exceptions import MCPError

from agent import __version__
from agent.core.escape import harmless, harmless_json
from agent.mcp import resources
from agent.mcp.api_calls import Api, ApiError
from agent.mcp.change_watch import ChangeWatch
from agent.mcp.route_tools import (
    ArgumentError,
    Hints,
    JsonSchema,
    RouteTool,
    check_arguments,
    route_tool,
)
from agent.mcp.task_waits import START_SCHEMA, WAIT_SCHEMA, TaskCall
from agent.mcp.tool_catalog import READ, START, WAIT, route_tools
from agent.mcp.workflow_tools import WorkflowTool, WorkflowTools
from agent.server.requests.route_registry import GRANT
from agent.server.token_shares import TokenShares
from agent.workflows.compile.output_schema import UnusableSchemaError
from agent.workflows.graph import TOOL_PREFIX

log = structlog.get_logger(__name__)

Context = ServerRequestContext[Any]
ApiOf = Callable[[Context], Api]
Answer = types.CallToolResult | types.InputRequiredResult

_MAX_SUBSCRIPTIONS: Final = 100
_STARTS: Final = Hints()
_INSTRUCTIONS: Final = """\
This agent runs workflows as durable tasks. start_workflow and the tools workflow_* start a task and return
at once unless wait_seconds is given; wait_for_task waits for it, for a bounded time, and can be called
again. A task may wait for a person: `needs` of the result says for what. A person answers, not you.
"""


class _Server(Server[Any]):
    """Tells clients of earlier protocols too that the list of tools may change."""

    def get_capabilities(
        self, notification_options: NotificationOptions | None = None, *args: Any, **more: Any
    ) -> types.ServerCapabilities:
        return super().get_capabilities(NotificationOptions(tools_changed=True), *args, **more)


class ProtocolServer:
    """Tools and resources of one agent."""

    def __init__(self, description: Mapping[str, Any], api_of: ApiOf, changes: ChangeWatch) -> None:
        """Serve the operations of an OpenAPI description; `api_of` is the API as a caller may use it."""
        self._tools = route_tools(description)
        self._result_schema = _result_schema(description)
        self._workflows = WorkflowTools()
        self._api_of = api_of
        self._changes = changes
        self._subscriptions = TokenShares(_MAX_SUBSCRIPTIONS, "")
        self._listen = ListenHandler(
            changes, max_subscriptions=_MAX_SUBSCRIPTIONS, max_buffered_events=1000
        )
        self.server: Server[Any] = _Server(
            "agent",
            version=__version__,
            title="agent",
            instructions=_INSTRUCTIONS,
            # None of our tools asks for headers of their arguments.
            get_tool_input_schema=lambda _: None,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_subscriptions_listen=self._subscribe,
        )

    def forget(self, session_id: str) -> None:
        """Note that a session has ended."""
        self._changes.forget(session_id)

    def close(self) -> None:
        """End the open subscriptions."""
        self._listen.close()
        self._changes.close()

    async def _list_tools(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        api = self._api_of(context)
        tools = [_described(tool) for tool in self._tools.values() if api.allows(tool.scope)]
        if api.allows("operate"):
            tools.insert(2, self._start_tool())
        if api.allows("read"):
            tools.insert(3, self._wait_tool())
        tools += [self._workflow_tool(tool) for tool in await self._offered(api)]
        self._changes.remember(context)
        return types.ListToolsResult(tools=tools)

    async def _offered(self, api: Api) -> list[WorkflowTool]:
        """Return the workflows that the caller may start as tools."""
        if not api.allows("operate"):
            return []
        try:
            return await self._workflows.list(api)
        except ApiError as error:
            # The token of an agent elsewhere may allow some of the tools only.
            log.debug("mcp.workflows_not_listed", error=str(error))
            return []

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> Answer:
        api = self._api_of(context)
        arguments = params.arguments or {}
        try:
            answer = await self._answer(api, context, params, arguments)
        except (ArgumentError, ApiError, UnusableSchemaError) as error:
            text = harmless(str(error))
            return types.CallToolResult(content=[types.TextContent(text=text)], is_error=True)
        if isinstance(answer, types.InputRequiredResult):
            return answer
        # Clients show a text to people; the same document is beside it as it is.
        text = harmless_json(answer)
        return types.CallToolResult(
            content=[types.TextContent(text=text)], structured_content=answer
        )

    async def _answer(
        self,
        api: Api,
        context: Context,
        params: types.CallToolRequestParams,
        arguments: dict[str, Any],
    ) -> dict[str, Any] | types.InputRequiredResult:
        name, call = params.name, TaskCall(api, context, params)
        if (tool := self._tools.get(name)) is not None:
            api.require(tool.scope, name)
            document: dict[str, Any] = await api.call(tool.request(arguments))
            return document
        if name == WAIT:
            api.require("read", name)
            return await call.wait(arguments)
        api.require("operate", name)
        if name == START:
            check_arguments(arguments, START_SCHEMA)
            seconds = float(arguments.get("wait_seconds", 0))
            return await call.start(arguments["name"], arguments, seconds)
        workflow = await self._workflow_of(api, name)
        check_arguments(arguments, workflow.input_schema)
        inputs, seconds = workflow.split(arguments)
        return await call.start(workflow.workflow, {"input": inputs}, seconds)

    async def _workflow_of(self, api: Api, name: str) -> WorkflowTool:
        offered = await self._workflows.list(api) if name.startswith(TOOL_PREFIX) else []
        for tool in offered:
            if tool.name == name:
                return tool
        raise MCPError(types.INVALID_PARAMS, f"there is no tool {name!r}")

    async def _list_resources(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=await resources.listed(self._api_of(context)))

    async def _list_templates(
        self, context: Context, _: types.PaginatedRequestParams | None
    ) -> types.ListResourceTemplatesResult:
        return types.ListResourceTemplatesResult(resource_templates=resources.TEMPLATES)

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        return await resources.read(self._api_of(context), str(params.uri))

    async def _subscribe(
        self, context: Context, params: types.SubscriptionsListenRequestParams
    ) -> types.SubscriptionsListenResult:
        if not self._api_of(context).allows("read"):
            raise MCPError(types.INVALID_PARAMS, "subscriptions need the scope 'read'")
        if context.request is None:
            return await self._listen(context, params)
        grant = context.request.scope[GRANT]
        if self._subscriptions.is_full(grant):
            raise MCPError(types.INTERNAL_ERROR, "too many subscriptions are open")
        with self._subscriptions.taken(grant):
            return await self._listen(context, params)

    def _start_tool(self) -> types.Tool:
        text = (
            "Start a task of a workflow. It is durable when this returns: at once, or after wait_seconds at"
            " most. The result has the task's id, and its output once it has succeeded."
        )
        return self._task_tool(START, "Start a workflow", text, START_SCHEMA, _STARTS)

    def _wait_tool(self) -> types.Tool:
        text = (
            "Wait for a task, for a bounded time: until it has ended, or needs a person or a signal"
            " (`needs`). If neither has come by then, call it again."
        )
        return self._task_tool(WAIT, "Wait for a task", text, WAIT_SCHEMA, READ)

    def _workflow_tool(self, tool: WorkflowTool) -> types.Tool:
        return self._task_tool(tool.name, tool.title, tool.description, tool.input_schema, _STARTS)

    def _task_tool(
        self, name: str, title: str, text: str, schema: JsonSchema, hints: Hints
    ) -> types.Tool:
        return types.Tool(
            name=name,
            title=title,
            description=text,
            input_schema=schema,
            output_schema=self._result_schema,
            annotations=_annotations(hints, is_open=hints is _STARTS),
        )


def _result_schema(description: Mapping[str, Any]) -> JsonSchema:
    """Return the schema of a task's result, as the tools that wait return it."""
    schema = dict(route_tool(WAIT, "get_result", READ, "", description).output_schema)
    message = {"type": "string", "description": "the state of the task, in words"}
    schema["properties"] = {**schema["properties"], "message": message}
    return schema


def _described(tool: RouteTool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.input_schema,
        output_schema=tool.output_schema,
        annotations=_annotations(tool.hints, is_open=False),
    )


def _annotations(hints: Hints, *, is_open: bool) -> types.ToolAnnotations:
    return types.ToolAnnotations(
        read_only_hint=hints.is_read_only,
        destructive_hint=hints.is_destructive,
        idempotent_hint=hints.is_idempotent,
        # A workflow may act on anything; the other tools change this agent alone.
        open_world_hint=is_open,
    )
