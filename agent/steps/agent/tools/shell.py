"""Programs as a tool: only command lines of the allow list, never a shell script."""

from collections.abc import Sequence

from agent.steps.agent.tool import AgentTool, ToolRefusedError, ToolRun
from agent.steps.attempt.context import StepContext
from agent.steps.kinds.shell import Shell
from agent.steps.spec.agent_config import ShellTool
from agent.steps.spec.configs import ShellConfig
from agent.steps.types.call_types import Call
from agent.steps.types.outcome import Json

_SCHEMA: dict[str, Json] = {
    "type": "object",
    "properties": {
        "argv": {
            "type": "array",
            "items": {"type": "string"},
            "minItems": 1,
            "description": "the program and its arguments; no shell reads them",
        },
        "stdin": {"type": "string"},
    },
    "required": ["argv"],
    "additionalProperties": False,
}


def make_tool(name: str, config: ShellTool, *, is_effect: bool) -> AgentTool:
    """Return the tool."""
    patterns = "; ".join(" ".join(pattern) for pattern in config.allow)
    text = f"Run a program. Allowed (* is one argument, ... any): {patterns}"

    def start(arguments: dict[str, Json], context: StepContext) -> ToolRun:
        argv = arguments["argv"]
        if any("\0" in part for part in argv):
            raise ToolRefusedError("an argument must not contain a NUL character")
        if not any(matches(argv, pattern) for pattern in config.allow):
            raise ToolRefusedError(f"{argv} is not among the allowed command lines: {patterns}")
        return _Command(
            ShellConfig(
                argv=argv,
                env=config.env,
                inherit=config.inherit,
                cwd=config.cwd,
                stdin=arguments.get("stdin"),
                effect=None if is_effect else "none",
            ),
            context,
        )

    return AgentTool(name, text, _SCHEMA, lambda _: is_effect, start, on_unknown="ask")


def matches(argv: Sequence[str], pattern: Sequence[str]) -> bool:
    """Whether a pattern allows a command line."""
    is_open = pattern[-1] == "..."
    parts = pattern[:-1] if is_open else pattern
    if len(argv) < len(parts) or (len(argv) > len(parts) and not is_open):
        return False
    return all(
        not argument.startswith("-") if part == "*" else argument == part
        for argument, part in zip(argv, parts, strict=False)
    )


class _Command(ToolRun):
    def __init__(self, config: ShellConfig, context: StepContext) -> None:
        self._shell = Shell(config, context, accepts_any_exit_code=True)
        self.prepare = self._shell.prepare

    async def perform(self, call: Call) -> Json:
        return await self._shell.perform()

    async def close(self) -> None:
        await self._shell.close()
