"""Example documents of values that outlive tasks: state and memories."""

from typing import Any, Final

from agent.server.examples.identities import AT, TASK_ID

_STATE_VERSION: Final[dict[str, Any]] = {
    "version": 4,
    "value": 199.5,
    "deleted": False,
    "written_by": "compare",
    "task": TASK_ID,
    "written_at": AT,
}
STATE_VALUE: Final[dict[str, Any]] = {
    "id": "workflow:price-watch/last_price",
    "scope": "workflow:price-watch",
    "workflow": "price-watch",
    "name": "last_price",
    **_STATE_VERSION,
}
STATE_HISTORY: Final = {**STATE_VALUE, "history": [_STATE_VERSION]}
STATE: Final = {"state": [STATE_VALUE], "next": None}
STATE_ANSWER: Final = {
    "changed": True,
    "message": "last_price in the state of workflow 'price-watch' set, version 5",
    "version": 5,
}
MEMORY: Final = {
    "id": 17,
    "scope": "personal",
    "text": "Anna likes green tea",
    "written_by": "agent",
    "task": TASK_ID,
    "step": "chat",
    "created_at": AT,
    "forgotten_at": None,
}
MEMORIES: Final = {"memories": [MEMORY], "next": None}
