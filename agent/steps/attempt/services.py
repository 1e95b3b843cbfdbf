"""The parts that the attempts of a worker share: clock, journal, limits, threads and clients."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.config.mail import MailSettings
from agent.config.models import McpSettings
from agent.core.clock import Clock
from agent.core.thread_bridge import UnboundedThreads
from agent.models.registry import ModelRegistry
from agent.steps.types.attempt_input import Journal
from agent.steps.types.conversation import Conversations
from agent.steps.types.messages import Messenger
from agent.steps.types.outcome import Json, Outcome
from agent.telemetry.spans import SpanSink


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
    own_urls: tuple[str, ...] = ()
    """Where this agent's own API is: the tool `http` of a model does not go there."""
    private_files: tuple[str, ...] = ()
    """Files of the agent itself, such as its tokens: the tool `files` of a model does not open them."""
    kill_grace_seconds: float = 5.0
    """Between SIGTERM and SIGKILL to a process group."""
    attach_from: tuple[str, ...] = ()
    """The directories whose files a message or a mail may carry."""
    directory: str | None = None
    """Where commands run, and what their relative `cwd` starts from; None is the process's directory."""
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


Document = dict[str, Json]


@dataclass(frozen=True, slots=True)
class AgentStep:
    """Who uses a tool: an agent's step, by the call that is on record for the use."""

    task_id: str
    step: str
    call_key: str
    """Stays the same when an unknown call is repeated: under it, a use takes effect once."""


class MemoryService(Protocol):
    """The memories of a scope. Its functions block: call them in a thread."""

    def remember(self, scope: str, text: str, by: AgentStep) -> Document:
        """Write a memory and return it; a repeated call returns the memory it wrote before."""

    def recall(self, scope: str, query: str, limit: int) -> list[Document]:
        """Return the memories that match a query, the best first; without one, the newest."""

    def forget(self, scope: str, memory_id: int, by: AgentStep) -> Document:
        """Forget a memory of the scope."""


class EngineService(Protocol):
    """Tasks, workflows and triggers, as far as agents may use them. Its functions block.

    `allowed` are the workflows that a tool may concern; None is every workflow.
    """

    def list_tasks(
        self, allowed: Sequence[str] | None, status: str | None, workflow: str | None, limit: int
    ) -> Document:
        """Return the newest tasks."""

    def show_task(self, allowed: Sequence[str] | None, task: str) -> Document:
        """Return a task's state, or its end."""

    def list_workflows(self, allowed: Sequence[str] | None) -> Document:
        """Return the workflows that can be started, with their inputs."""

    def list_triggers(self, allowed: Sequence[str] | None, kind: str) -> Document:
        """Return schedules (`schedule`) or watchers (`watch`)."""

    def start(
        self,
        allowed: Sequence[str] | None,
        workflow: str,
        inputs: Mapping[str, Json],
        by: AgentStep,
    ) -> Document:
        """Start a task; a repeated call returns the task that it started before."""

    def pause(
        self, allowed: Sequence[str] | None, task: str, reason: str | None, by: AgentStep
    ) -> Document:
        """Pause a task."""

    def resume(self, allowed: Sequence[str] | None, task: str, by: AgentStep) -> Document:
        """Resume a paused task."""

    def cancel(
        self, allowed: Sequence[str] | None, task: str, reason: str | None, by: AgentStep
    ) -> Document:
        """Cancel a task."""


class Execution(Protocol):
    """One attempt that an executor runs; see `agent.steps.executors`."""

    async def ready(self, context: Any) -> None:
        """Wait for the attempt's resources, before its time begins."""

    async def run(self, config: Any, context: Any) -> Outcome:
        """Run the attempt, in the place of the kind's own handler."""

    def close(self) -> None:
        """Release the attempt's resources."""


class StepExecutors(Protocol):
    """The executors of a worker."""

    def open(
        self, kind: str, executor: Mapping[str, Json] | None, services: "Services"
    ) -> Execution | None:
        """Return the executor of an attempt; None where the kind itself runs it, in this process.

        `executor` is the step's own; without one, the configuration's. Raise `DefiniteFailure` if
        the executor cannot be used.
        """


class Resource(Protocol):
    """A resource that attempts share and that is closed with the worker."""

    async def aclose(self) -> None:
        """Release what it holds."""


@dataclass(slots=True)
class Services:
    """The runner's dependencies besides the attempt's input."""

    clock: Clock
    journal: Journal
    limits: Limits = field(default_factory=Limits)
    models: ModelRegistry = field(default_factory=ModelRegistry)
    mcp: Mapping[str, McpSettings] = field(default_factory=dict)
    """The MCP servers whose tools agents may use."""
    mail: Mapping[str, MailSettings] = field(default_factory=dict)
    """The accounts that `mail` steps send from."""
    start_missed: StartMissed | None = None
    """Starts missed runs of a schedule; only a daemon has it."""
    messenger: Messenger | None = None
    """Sends the messages of `message` steps."""
    conversations: Conversations | None = None
    """The entries of conversations, for `agent` steps that continue one."""
    memory: MemoryService | None = None
    """For the tool `memory` of agents."""
    engine: EngineService | None = None
    """For the tool `engine` of agents."""
    executors: StepExecutors | None = None
    """Where the code of steps runs; None: all of it in this process."""
    is_default_executor_remote: bool = False
    """Whether the configuration names another executor than `local` for steps without one."""
    spans: SpanSink | None = None
    """Takes the spans of attempts and calls, where the configuration has a receiver of traces."""
    threads: UnboundedThreads = field(default_factory=UnboundedThreads)
    resources: dict[str, Resource] = field(default_factory=dict)
    """Made at the first use by the kind that needs them: HTTP clients are not imported before."""

    async def aclose(self) -> None:
        """Close the shared resources; called once no attempt is in flight."""
        while self.resources:
            _, resource = self.resources.popitem()
            await resource.aclose()
        if self.messenger is not None:
            await self.messenger.aclose()
