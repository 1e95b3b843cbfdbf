"""What the attempts of a worker share: clock, journal, limits, threads and clients."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.config.models import McpSettings
from agent.core.clock import Clock
from agent.core.thread_bridge import UnboundedThreads
from agent.models.registry import ModelRegistry
from agent.steps.types.attempt_input import Journal
from agent.steps.types.conversation import Conversations


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a step; `bootstrap` fills them from the configuration."""

    output_bytes: int = 1_048_576
    """The largest output of one step, as JSON."""
    inline_bytes: int = 65_536
    """Larger outputs, requests and responses are stored apart from their rows."""
    artifacts_url: str = ""
    """Where they are stored; empty is the database itself."""
    log_bytes: int = 4_194_304
    """The log of one attempt; the rest is cut."""
    response_bytes: int = 10_485_760
    """The largest body that is read from a remote."""
    max_redirects: int = 10
    allow_private: tuple[str, ...] = ()
    """Private addresses, networks and host names that `http` may reach."""
    kill_grace_seconds: float = 5.0
    """Between SIGTERM and SIGKILL to a process group."""
    inherit: tuple[str, ...] = ()
    """Variables of the agent's environment that every command inherits besides the basic ones."""
    send_window_seconds: float = 10.0
    """An effect begins within this time after its intent, or not at all."""
    items_per_group: int = 10_000
    """The most items of one `foreach` or `parallel` step."""
    call_seconds: float = 60.0
    """The timeout of a call, if neither the call nor its step has one."""
    attempt_seconds: float = 3600.0
    """The timeout of an attempt of `python` or `shell`, if its step has none."""


StartMissed = Callable[[str, list[int]], Awaitable[list[str]]]
"""Takes the id of a trigger and nominal instants; returns the tasks that it started."""


class Resource(Protocol):
    """A resource that attempts share and that is closed with the worker."""

    async def aclose(self) -> None:
        """Release what it holds."""


@dataclass(slots=True)
class Services:
    """What the runner needs besides the attempt's input."""

    clock: Clock
    journal: Journal
    limits: Limits = field(default_factory=Limits)
    models: ModelRegistry = field(default_factory=ModelRegistry)
    mcp: Mapping[str, McpSettings] = field(default_factory=dict)
    """The MCP servers whose tools agents may use."""
    start_missed: StartMissed | None = None
    """Starts missed runs of a schedule; only a daemon has it."""
    conversations: Conversations | None = None
    """What was said in conversations, for `agent` steps that continue one."""
    threads: UnboundedThreads = field(default_factory=UnboundedThreads)
    resources: dict[str, Resource] = field(default_factory=dict)
    """Made at the first use by the kind that needs them: HTTP clients are not imported before."""

    async def aclose(self) -> None:
        """Close the shared resources; called once no attempt is in flight."""
        while self.resources:
            _, resource = self.resources.popitem()
            await resource.aclose()
