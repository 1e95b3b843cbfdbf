"""What every attempt of a worker shares: the clock, the journal, the bounds, threads and clients."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from agent.config.models import McpSettings
from agent.core.clock import Clock
from agent.core.thread_bridge import UnboundedThreads
from agent.models.registry import ModelRegistry
from agent.steps.types.attempt_input import Journal


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a step may do; the composition root fills them from the configuration."""

    output_bytes: int = 1_048_576
    """The largest output of one step, as JSON."""
    inline_bytes: int = 65_536
    """Larger outputs, requests and responses are kept apart from their rows."""
    artifacts_url: str = ""
    """Where they are kept; empty is the database itself."""
    log_bytes: int = 4_194_304
    """What one attempt may write to its log; the rest is cut."""
    response_bytes: int = 10_485_760
    """The largest body taken from a remote."""
    max_redirects: int = 10
    allow_private: tuple[str, ...] = ()
    """Addresses, networks and host names that `http` may reach although they are private."""
    kill_grace_seconds: float = 5.0
    """Between asking a process group to end and ending it."""
    inherit: tuple[str, ...] = ()
    """Variables of the agent's own environment that every command gets besides the basic ones."""
    send_window_seconds: float = 10.0
    """An effect whose intent was recorded begins within this time or not at all."""
    items_per_group: int = 10_000
    """How many items one `foreach` or `parallel` step may have."""
    call_seconds: float = 60.0
    """How long one call may take where neither it nor its step says so."""
    attempt_seconds: float = 3600.0
    """How long an attempt of `python` or `shell` may take that has no timeout of its own."""


class Resource(Protocol):
    """Something that attempts share and that is closed with the worker."""

    async def aclose(self) -> None:
        """Release what it holds."""


@dataclass(slots=True)
class Services:
    """What the runner needs besides what it runs."""

    clock: Clock
    journal: Journal
    limits: Limits = field(default_factory=Limits)
    models: ModelRegistry = field(default_factory=ModelRegistry)
    mcp: Mapping[str, McpSettings] = field(default_factory=dict)
    """The MCP servers whose tools agents may use."""
    threads: UnboundedThreads = field(default_factory=UnboundedThreads)
    resources: dict[str, Resource] = field(default_factory=dict)
    """Made by the kind that needs them, at its first use: HTTP clients are not imported before."""

    async def aclose(self) -> None:
        """Close what attempts shared; called once none is in flight."""
        while self.resources:
            _, resource = self.resources.popitem()
            await resource.aclose()
