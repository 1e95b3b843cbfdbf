"""The keys of the `agent` kind and of its tools."""

from typing import Annotated, Any, Literal

from agent.core.quick_classes.quick_fields import (
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)
from agent.core.quick_classes.quick_models import BaseModel
from agent.steps.spec.configs import Count, JsonSchema, Names, Number, Seconds, Text
from agent.steps.spec.questions import PositiveSeconds, Who

Method = Literal["get", "head", "post", "put", "patch", "delete"]
Argv = Annotated[list[Text], Field(min_length=1)]


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


class _Keys(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class HttpTool(_Keys):
    """Requests to these addresses and those below them."""

    urls: Annotated[list[str], BeforeValidator(_as_list)] = Field(min_length=1)
    methods: list[Method] = Field(default=["get"], min_length=1)
    headers: dict[str, Text] = Field(default_factory=dict)


class ShellTool(_Keys):
    """Programs with their arguments; `*` is one argument that is not an option, a last `...` is any."""

    allow: list[Argv] = Field(min_length=1)
    cwd: str | None = None
    env: dict[str, Text] = Field(default_factory=dict)
    inherit: Names = Field(default_factory=list)


class FilesTool(_Keys):
    """Files below one directory."""

    directory: str = Field(min_length=1)
    write: bool = False


class McpTool(_Keys):
    """Tools of an MCP server that the configuration names."""

    server: str = Field(min_length=1, description="NAME of [mcp.NAME] in the configuration")
    tools: list[str] | None = Field(
        default=None,
        min_length=1,
        description="which tools; default: those that the configuration lists",
    )


MemoryVerb = Literal["remember", "recall", "forget"]
EngineVerb = Literal["list", "show", "start", "pause", "resume", "cancel"]
"""What a model may do with tasks. Answers to approvals, signals, verdicts on unknown calls and budgets
are people's: a verb for one of them must not be added."""


class MemoryTool(_Keys):
    """Texts that outlive the task, found by their words."""

    scope: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z][A-Za-z0-9_-]*$",
        max_length=100,
        description="a scope that workflows share; default: this workflow's own",
    )
    allow: list[MemoryVerb] = Field(default=["remember", "recall", "forget"], min_length=1)
    results: Count = Field(default=10, ge=1, le=50, description="memories of one recall, at most")


class EngineTool(_Keys):
    """Tasks, workflows, schedules and watchers of this agent."""

    allow: list[EngineVerb] = Field(
        default=["list", "show", "start", "pause", "resume", "cancel"], min_length=1
    )
    workflows: list[str] | None = Field(
        default=None,
        min_length=1,
        description="only these and their tasks; default: every workflow",
    )
    max_starts: Count = Field(default=10, ge=1, le=100, description="tasks that one step may start")

    @model_validator(mode="after")
    def _each_once(self) -> "EngineTool":
        if len(set(self.allow)) < len(self.allow):
            raise ValueError("allow names a verb twice")
        return self


TOOL_KINDS = ("http", "shell", "python", "files", "workflow", "mcp", "memory", "engine")


class ToolConfig(_Keys):
    """One tool and the limits of its use."""

    http: HttpTool | None = None
    shell: ShellTool | None = None
    python: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$",
        description="module:function",
    )
    files: FilesTool | None = None
    workflow: str | None = Field(default=None, min_length=1, description="a workflow's name")
    mcp: McpTool | None = None
    memory: MemoryTool | None = None
    engine: EngineTool | None = None
    description: str | None = Field(default=None, max_length=4000)
    allowed: bool = True
    approve: Literal["always", "first", "never"] | None = Field(
        default=None, description="when a person is asked; default: always for effects, else never"
    )
    arguments: JsonSchema | None = Field(
        default=None, description="a JSON Schema that its arguments must meet besides its own"
    )
    max_calls: Count | None = Field(default=None, ge=1)
    timeout: Seconds | None = None
    effect: Literal["none", "once"] | None = Field(
        default=None,
        description="none: it only reads, and may be repeated; once (the default): it is an effect",
    )
    on_unknown: Literal["retry", "ask", "fail"] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "ToolConfig":
        if sum(getattr(self, kind) is not None for kind in TOOL_KINDS) != 1:
            raise ValueError("give exactly one of " + ", ".join(TOOL_KINDS))
        if self.workflow is not None and (self.timeout is not None or self.on_unknown is not None):
            raise ValueError("a workflow has a timeout of its own, and its end is never unknown")
        if self.memory is not None or self.engine is not None:
            kind = "memory" if self.memory is not None else "engine"
            if self.on_unknown is not None:
                raise ValueError(
                    f"a use of {kind} is never unknown: it happens once, so no on_unknown"
                )
            if self.effect is not None:
                raise ValueError(
                    f"{kind} takes no effect: its verbs decide what acts; `allow` lists them"
                )
        return self

    @property
    def is_external(self) -> bool:
        """Whether a workflow or a server describes it, not the definition."""
        return self.workflow is not None or self.mcp is not None

    @property
    def source(self) -> dict[str, Any]:
        """The workflow or the server that describes it."""
        if self.mcp is not None:
            return {"mcp": self.mcp.server, "tools": self.mcp.tools}
        return {"workflow": self.workflow}


def keeps_conversation(config: dict[str, Any]) -> bool:
    """Whether a step, by its definition, continues a conversation."""
    return bool(config.get("conversation"))


ToolName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=50)]


class AgentConfig(_Keys):
    """`agent`: a goal that a model pursues with tools, turn by turn."""

    goal: Annotated[Text, Field(min_length=1)]
    system: Text | None = None
    model: str | None = Field(default=None, description="a name of [models] in the configuration")
    tools: dict[ToolName, ToolConfig] = Field(default_factory=dict)
    conversation: Text | None = Field(
        default=None, description="its name: the step goes on with it; empty: none"
    )
    conversation_tokens: Count = Field(
        default=8000,
        ge=200,
        le=1_000_000,
        description="of what was said before, at most; older entries are summarised",
    )
    max_turns: Count = Field(default=20, ge=1, le=1000, description="answers of the model, at most")
    max_tokens: Count | None = Field(default=None, ge=1, le=10_000_000)
    max_repeats: Count = Field(
        default=3, ge=1, le=100, description="turns in a row with the same tool uses"
    )
    max_result_chars: Count = Field(
        default=20_000, ge=100, le=200_000, description="of a tool's answer; the rest is cut"
    )
    effort: Literal["minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    temperature: Number | None = Field(default=None, ge=0, le=2)
    who: Annotated[list[Who], BeforeValidator(_as_list)] = Field(
        default_factory=list, description="who may approve; default: everyone who can"
    )
    expires: PositiveSeconds | None = Field(
        default=None, description="how long a question stays open"
    )
