"""The kinds of steps: each with the model of its keys and the module that runs it.

Importing this module registers every kind with the workflow language. The model of a kind is imported
with the first step of that kind, and the module that runs it at its first attempt: checking a workflow
loads neither HTTP clients nor processes, nor libraries of kinds that it does not use.
"""

from collections.abc import Awaitable, Callable
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from agent.core.quick_classes.quick_dataclasses import dataclass, field
from agent.workflows.graph import OnUnknown
from agent.workflows.kind_registry import KindSpec, register

if TYPE_CHECKING:
    from pydantic import BaseModel

    from agent.core.quick_classes import quick_models
    from agent.steps.attempt.context import StepContext
    from agent.steps.types.outcome import Outcome

Handler = Callable[[Any, "StepContext"], Awaitable["Outcome"]]
Complete = Callable[[dict[str, Any]], dict[str, Any]]
Ready = Callable[[Any, "StepContext"], Awaitable[None]]


@dataclass(slots=True)
class Kind:
    """One kind of step."""

    name: str
    model_name: str
    """The model of its keys: a module of this package, and the class in it."""
    module: str
    """The module with its `run(config, context)`, and perhaps `ready(config, context)`."""
    description: str
    on_unknown: OnUnknown = "retry"
    short_key: str | None = None
    verbatim: frozenset[tuple[str, ...]] = frozenset()
    """Keys that are never rendered."""
    expressions: dict[tuple[str, ...], tuple[str, ...]] = field(default_factory=dict)
    """Verbatim keys that hold an expression, each with the names that exist only there."""
    example: str | None = None
    """How it is written, if there is no short form."""
    secret_keys: frozenset[str] = frozenset()
    """Keys under which a reference names a secret."""
    acts: bool = True
    """False when its attempts only wait or ask: a lost attempt has no effect."""
    retry: dict[str, float] = field(default_factory=dict)
    """The keys of `retry` whose defaults differ for this kind."""
    runs_code: bool = False
    """Whether an attempt runs the user's code, which may never end: `attempt_seconds` limits it. The
    calls of other kinds have timeouts of their own."""
    complete: Complete | None = None
    """Adds implied values to a rendered configuration, before a person is asked about it."""
    background: Callable[[dict[str, Any]], str | None] | None = None
    """What a question about a rendered configuration shows besides it: the approval does not cover it."""
    _handler: Handler | None = field(default=None, repr=False)
    _ready: "Ready | None" = field(default=None, repr=False)

    @property
    def model(self) -> "type[BaseModel]":
        """The model of its keys, which checks rendered values."""
        return _load_model(self.model_name).pydantic

    @property
    def is_loaded(self) -> bool:
        """Whether its code is imported."""
        return self._handler is not None

    @property
    def handler(self) -> Handler:
        """The function that runs it."""
        if self._handler is None:
            module = import_module(self.module)
            self._ready = getattr(module, "ready", None)
            self._handler = module.run
        assert self._handler is not None
        return self._handler

    @property
    def ready(self) -> Ready | None:
        """The function that loads further libraries of an attempt; most kinds have none."""
        return self._ready


@cache
def _load_model(name: str) -> "type[quick_models.BaseModel]":
    module, _, model = name.partition(":")
    loaded: type[quick_models.BaseModel] = getattr(
        import_module(f"agent.steps.spec.{module}"), model
    )
    return loaded


def _complete_mail(config: dict[str, Any]) -> dict[str, Any]:
    from agent.steps.spec import mail_config

    return mail_config.complete(config)


def _answered_mail(config: dict[str, Any]) -> str | None:
    from agent.steps.spec import mail_config

    return mail_config.answered_mail(config)


def _complete_mailbox(config: dict[str, Any]) -> dict[str, Any]:
    from agent.steps.spec import mailbox_config

    return mailbox_config.complete(config)


def _changed_mail(config: dict[str, Any]) -> str | None:
    from agent.steps.spec import mailbox_config

    return mailbox_config.shown_mail(config)


KINDS: dict[str, Kind] = {}


def add(kind: Kind) -> None:
    """Register a kind with the runner and with the workflow language."""
    KINDS[kind.name] = kind
    register(
        KindSpec(
            name=kind.name,
            load_model=partial(_load_model, kind.model_name),
            description=kind.description,
            default_on_unknown=kind.on_unknown,
            short_key=kind.short_key,
            verbatim=kind.verbatim,
            expressions=kind.expressions,
            example=kind.example,
            retry=kind.retry,
        )
    )


add(
    Kind(
        "python",
        "configs:PythonConfig",
        "agent.steps.kinds.python",
        "calls a Python function",
        short_key="call",
        verbatim=frozenset({("code",)}),
        runs_code=True,
    )
)
add(
    Kind(
        "shell",
        "configs:ShellConfig",
        "agent.steps.kinds.shell",
        "runs a program or a shell script",
        on_unknown="ask",
        # No text from outside may choose which variables a command inherits.
        verbatim=frozenset({("script",), ("inherit",), ("code",)}),
        example="{argv: [echo, hello]} or {script: 'echo hello | wc -c'}",
        secret_keys=frozenset({"env"}),
        runs_code=True,
    )
)
add(
    Kind(
        "http",
        "configs:HttpConfig",
        "agent.steps.kinds.http",
        "makes an HTTP request",
        verbatim=frozenset({("reconcile", "applied")}),
        expressions={("reconcile", "applied"): ("response",)},
        example='{get: "https://example.com"}',
        secret_keys=frozenset({"headers", "params", "json", "data", "reconcile"}),
    )
)
add(
    Kind(
        "llm",
        "configs:LlmConfig",
        "agent.steps.kinds.llm.llm",
        "asks a model",
        short_key="prompt",
    )
)
add(
    Kind(
        "agent",
        "agent_config:AgentConfig",
        "agent.steps.agent.loop",
        "lets a model pursue a goal with tools",
        example="{goal: tidy up, tools: {notes: {files: {directory: notes}}}}",
        # Only the definition grants tools: no text from outside can add one.
        verbatim=frozenset({("tools",)}),
        secret_keys=frozenset({"tools"}),
    )
)
add(
    Kind(
        "mail",
        "mail_config:MailConfig",
        "agent.steps.kinds.mail",
        "sends a mail",
        on_unknown="ask",
        example="{to: ann@example.org, subject: Hello, text: How are you?}",
        complete=_complete_mail,
        background=_answered_mail,
    )
)
add(
    Kind(
        "mailbox",
        "mailbox_config:MailboxConfig",
        "agent.steps.kinds.mailbox",
        "moves, labels or flags a mail",
        # Every change may be made twice.
        on_unknown="retry",
        example='{mail: "{{ trigger.item }}", move: Archive}',
        complete=_complete_mailbox,
        background=_changed_mail,
    )
)
add(
    Kind(
        "wait",
        "configs:WaitConfig",
        "agent.steps.kinds.wait",
        "waits for a time or for a signal",
        short_key="duration",
        acts=False,
    )
)
add(
    Kind(
        "workflow",
        "configs:WorkflowConfig",
        "agent.steps.kinds.child_workflow",
        "runs another workflow as a child task",
        short_key="name",
        acts=False,
    )
)
add(
    Kind(
        "approval",
        "questions:ApprovalConfig",
        "agent.steps.kinds.approval",
        "asks a person for a yes; as a key of another step it asks before that one acts",
        short_key="message",
        verbatim=frozenset({("when",)}),
        expressions={("when",): ("request",)},
        acts=False,
    )
)
add(
    Kind(
        "input",
        "questions:InputConfig",
        "agent.steps.kinds.input",
        "asks a person for a value",
        short_key="message",
        verbatim=frozenset({("schema",)}),
        acts=False,
    )
)
add(
    Kind(
        "message",
        "message_config:MessageConfig",
        "agent.steps.kinds.message",
        "sends a message to a person",
        short_key="text",
        # Twice is better than not at all.
        on_unknown="retry",
        secret_keys=frozenset({"to"}),
        # `deliver_within` bounds them in time.
        retry={"max_attempts": 100, "delay": 5.0},
    )
)
add(
    Kind(
        "worker",
        "worker_config:WorkerConfig",
        "agent.steps.kinds.worker",
        "lets a program outside do the work",
        on_unknown="ask",
        # No text from outside may choose who gets the work.
        verbatim=frozenset({("queue",)}),
        example="{queue: review, with: {text: hello}}",
    )
)
