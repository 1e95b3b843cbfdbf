"""Command lines to start from, for the help of the program and of its commands."""

from typing import Final

EXAMPLES: Final[dict[str, tuple[tuple[str, str], ...]]] = {
    "init": (
        ("agent init", "an agent in this directory"),
        ("agent init ~/agent --example backup", "one elsewhere, with an example workflow"),
        ("agent init --user", "your own, used wherever there is no other"),
    ),
    "up": (
        ("agent up", "run tasks until Ctrl-C"),
        ("agent -c server.port=8421 up", "with another port, this time"),
    ),
    "status": (("agent status --json", "for a script; exit code 3: not running"),),
    "stop": (("agent stop --now", "without waiting for running steps"),),
    "service": (
        ("agent service install", "start it at each login, and watch over it"),
        ("agent service install --print", "show the unit, and change nothing"),
    ),
    "mcp": (
        ("claude mcp add agent -- agent mcp", "let Claude Code use this agent"),
        ("agent mcp --scope read", "tools that only read"),
        ("agent mcp --allow-answers", "and the user of the client may answer questions"),
    ),
    "top": (("agent top --once", "what runs at this moment"),),
    "config": (
        ("agent config --changed", "what differs from the defaults, and where it was set"),
        ("agent config engine.slots", "one value"),
        ("agent config set engine.slots 10", "change the file"),
    ),
    "run": (
        ("agent run hello -i name=you", "start a task and follow it"),
        ("agent run report.yaml --detach", "start it and return at once"),
    ),
    "validate": (("agent validate workflows/*.yaml", "check files without running them"),),
    "tasks": (("agent tasks --status failed", "what went wrong"),),
    "show": (
        ("agent show 2a493545", "a task, by the end of its id"),
        ("agent show 2a493545 fetch", "one of its steps"),
    ),
    "logs": (("agent logs 2a493545 --follow", "what its steps write, as it comes"),),
    "retry": (("agent retry 2a493545 --wait", "run what has not succeeded, and follow it"),),
    "fork": (
        ("agent fork 2a493545 --from pay -i amount=20", "again from a step, with another input"),
    ),
    "resolve": (("agent resolve 2a493545 pay --done", "it happened: continue after it"),),
    "approve": (("agent approve 5b1d2e3f", "the step runs as shown"),),
    "answer": (("agent answer 5b1d2e3f blue", "a question that takes a value"),),
    "schedules": (("agent schedules run backup", "now, in addition to its times"),),
    "queue": (
        ("agent queue work reviews -- ./review.sh", "run a command for each step of a queue"),
        ("agent queue dead --count", "dead letters, by queue and error"),
        ("agent queue requeue --all --error heartbeat_timeout", "put some of them back"),
    ),
    "token": (("agent token create phone --scope read", "for a program or a device"),),
    "completion": (
        ("source <(agent completion bash)", "for this shell"),
        ("agent completion zsh --install", "for every new shell"),
    ),
    "schema": (("agent schema --install", "let editors check and complete workflow files"),),
}
"""By command: what to type, and what it does."""

FIRST: Final = (
    ("agent init", "create an agent in this directory"),
    ("agent run hello -i name=you", "run a task and follow it"),
    ("agent up", "run schedules, watchers and the HTTP API"),
    ("agent status", "what runs, and what needs you"),
    ("agent help COMMAND", "options and examples of a command"),
)
"""On the first page of the help."""


def lines(examples: tuple[tuple[str, str], ...]) -> list[str]:
    """Return the examples as lines of a help text; a long command gets a line of its own."""
    width = min(max(len(command) for command, _ in examples), 30)
    shown = []
    for command, about in examples:
        if len(command) > width:
            shown += [f"  {command}", f"  {'':<{width}}  {about}"]
        else:
            shown.append(f"  {command:<{width}}  {about}")
    return shown
