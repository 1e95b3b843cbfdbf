"""Resources: tasks and open questions as documents."""

from http import HTTPStatus
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

from agent.core.escape import harmless_json
from agent.mcp.api_calls import Api, ApiError, ApiRequest
from agent.mcp.questions import path

APPROVALS: Final = "agent://approvals"
TASK: Final = "agent://tasks/"
_JSON: Final = "application/json"
_MOST_LISTED: Final = 20

TEMPLATES: Final = [
    types.ResourceTemplate(
        name="task",
        title="A task",
        uri_template=TASK + "{id}",
        description="Everything about a task: its status, its steps, its output, what it waits for.",
        mime_type=_JSON,
    )
]


async def listed(api: Api) -> list[types.Resource]:
    """Return the open questions, and the newest tasks."""
    if not api.allows("read"):
        return []
    page = await api.call(ApiRequest("GET", "/api/v1/tasks", {"limit": _MOST_LISTED}))
    tasks = [
        types.Resource(
            uri=TASK + task["id"],
            name=f"{task['workflow']} {task['id'][-8:]}",
            description=f"{task['activity']}, created at {task['created_at']}",
            mime_type=_JSON,
        )
        for task in page["tasks"]
    ]
    text = "Questions that tasks wait for; people answer them."
    approvals = types.Resource(
        uri=APPROVALS, name="approvals", title="Open questions", description=text, mime_type=_JSON
    )
    return [approvals, *tasks]


async def read(api: Api, uri: str) -> types.ReadResourceResult:
    """Return a resource's document; raise `MCPError` for one that does not exist or is not allowed."""
    if uri == APPROVALS:
        request = ApiRequest("GET", "/api/v1/approvals", {"limit": 1000})
    elif uri.startswith(TASK) and len(uri) > len(TASK):
        request = ApiRequest("GET", path("/api/v1", "tasks", uri.removeprefix(TASK)))
    else:
        raise _not_found(uri, f"there is no resource {uri}")
    try:
        document: Any = await api.call(request)
    except ApiError as error:
        if error.status == HTTPStatus.NOT_FOUND:
            raise _not_found(uri, str(error)) from None
        raise MCPError(types.INVALID_REQUEST, str(error)) from None
    text = harmless_json(document)
    return types.ReadResourceResult(
        contents=[types.TextResourceContents(uri=uri, mime_type=_JSON, text=text)]
    )


def _not_found(uri: str, text: str) -> MCPError:
    return MCPError(types.INVALID_PARAMS, text, {"uri": uri})
