"""Memories as the tool `memory` of agents sees them: one scope, and refusals as words for the model."""

from agent.steps.attempt.services import AgentStep
from agent.tool_services.memories import Document, Memories
from agent.tool_services.tool_errors import tool_errors


class ToolMemory:
    """The memories that agents write and read; every function blocks."""

    def __init__(self, memories: Memories) -> None:
        self._memories = memories

    def remember(self, scope: str, text: str, by: AgentStep) -> Document:
        """Write a memory and return it; a repeated call returns the memory it wrote before."""
        with tool_errors():
            return self._memories.remember(
                scope,
                text,
                written_by="agent",
                call_key=by.call_key,
                task_id=by.task_id,
                step=by.step,
            )

    def recall(self, scope: str, query: str, limit: int) -> list[Document]:
        """Return the memories that match a query, the best first; without one, the newest."""
        with tool_errors():
            return self._memories.recall(scope, query, limit)

    def forget(self, scope: str, memory_id: int, by: AgentStep) -> Document:
        """Forget a memory of the scope."""
        with tool_errors():
            return self._memories.forget(memory_id, scope=scope, call_key=by.call_key)
