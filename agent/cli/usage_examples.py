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
    "status": (
        ("agent status", "what runs, and what needs you"),
        ("agent status --json", "for a script; exit code 3: not running"),
    ),
    "open": (
        ("agent open", "the dashboard in a browser"),
        ("agent open --qr", "on a phone"),
        ("agent open --scope read --print", "a link that shows and changes nothing"),
    ),
    "reload": (("agent reload", "after a change of config.toml"),),
    "stop": (("agent stop --now", "without waiting for running steps"),),
    "service": (
        ("agent service install", "start it at each login, and watch over it"),
        ("agent service install --print", "show the unit, and change nothing"),
        ("agent service logs --follow", "what it writes, as it comes"),
    ),
    "doctor": (
        ("agent doctor", "what is wrong, and what to do about it"),
        ("agent doctor --deep", "check every record of the database, too"),
    ),
    "mcp": (
        ("claude mcp add agent -- agent mcp", "let Claude Code use this agent"),
        ("agent mcp --scope read", "tools that only read"),
        ("agent mcp --allow-answers", "let its user answer questions, too"),
    ),
    "top": (("agent top --once", "what runs at this moment"),),
    "config": (
        ("agent config --changed", "what differs from the defaults"),
        ("agent config engine.slots", "one value"),
        ("agent config set engine.slots 10", "change the file"),
    ),
    "run": (
        ("agent run hello -i name=you --wait", "start a task and follow it to its end"),
        ("agent run report.yaml --detach", "start it and return at once"),
        ("agent run report --json", "for a script: one document at its end"),
    ),
    "validate": (
        ("agent validate", "every workflow of the agent"),
        ("agent validate report.yaml", "one file"),
        ("agent validate drafts", "every workflow file of a directory"),
    ),
    "workflows": (
        ("agent workflows show backup", "its graph, inputs and versions"),
        ("agent workflows compare backup 1 2", "what changed between two versions"),
    ),
    "examples": (
        ("agent examples", "workflows to start from"),
        ("agent examples backup", "print one of them"),
    ),
    "tasks": (
        ("agent tasks --status failed", "what went wrong"),
        ("agent tasks --waiting", "what waits for a person, a time or a signal"),
        ("agent tasks --since 1d --search invoice", "those of a day with a word in them"),
    ),
    "show": (
        ("agent show 2a493545", "a task, by the end of its id"),
        ("agent show 2a493545 fetch", "one of its steps, with every attempt"),
        ("agent show 2a493545 -o out.json", "its output, as a file"),
    ),
    "watch": (("agent watch 2a493545", "its steps as they run; Ctrl-C leaves it running"),),
    "logs": (
        ("agent logs 2a493545 --follow", "what its steps write, as it comes"),
        ("agent logs 2a493545 fetch --tail 20", "the end of one step's log, with times: -t"),
    ),
    "events": (
        ("agent events 2a493545", "what happened to a task"),
        ("agent events --follow", "everything, from now on"),
    ),
    "budget": (
        ("agent budget", "what models have cost today"),
        ("agent budget 2a493545 --usd 5", "let a task spend more, and resume it"),
    ),
    "pause": (("agent pause 2a493545 --reason audit", "until `agent resume 2a493545`"),),
    "retry": (
        ("agent retry 2a493545 --wait", "run what has not succeeded, and follow it"),
        ("agent retry 2a493545 --latest", "with the newest version of the workflow"),
    ),
    "fork": (
        ("agent fork 2a493545 --from pay -i amount=20", "again from a step, with another input"),
        ("agent fork 2a493545 -i amount=20", "from the beginning"),
    ),
    "resolve": (
        ("agent resolve 2a493545 pay --done", "it happened: continue after it"),
        ("agent resolve 2a493545 pay --retry", "it did not happen: run it again"),
    ),
    "signal": (
        ("agent signal 2a493545 signed", "without a value"),
        ("agent signal 2a493545 signed yes", "with a text, or with JSON"),
    ),
    "approvals": (
        ("agent approvals", "what waits for an answer"),
        ("agent approvals 5b1d2e3f", "all that an answer covers"),
    ),
    "approve": (
        ("agent approve 5b1d2e3f", "the step runs as shown"),
        ("agent approve 5b1d2e3f --set with.amount=30", "with another value"),
    ),
    "deny": (("agent deny 5b1d2e3f --reason late", "the step fails with that reason"),),
    "answer": (("agent answer 5b1d2e3f blue", "a question that takes a value"),),
    "defer": (("agent defer 5b1d2e3f 2h", "ask me again in two hours"),),
    "schedules": (
        ("agent schedules show backup", "when it is due, and what became of it"),
        ("agent schedules run backup", "now, in addition to its times"),
        ("agent schedules pause backup --until 2d", "for two days"),
    ),
    "watchers": (
        ("agent watchers check news", "what it would start; records nothing"),
        ("agent watchers show news", "what became of its latest items"),
    ),
    "queue": (
        ("agent queue work reviews -- ./review.sh", "run a command for each step of a queue"),
        ("agent queue dead --count", "dead letters, by queue and error"),
        ("agent queue requeue --all --error heartbeat_timeout", "put some of them back"),
    ),
    "chat": (("agent chat", "type a sentence, or /help"),),
    "conversations": (("agent conversations show telegram:12345", "what was said"),),
    "pair": (
        ("agent pair K7QM-2XWD", "with the code that the bot sent"),
        ("agent pair K7QM-2XWD --scope read", "the account may only look"),
    ),
    "notify": (("agent notify test", "a test notice to everyone who gets notices"),),
    "pairings": (("agent pairings remove telegram:12345", "it may no longer use the agent"),),
    "memory": (
        ("agent memory search train", "what agents know of it"),
        ('agent memory add "The bins go out on Monday" --scope personal', "tell them"),
        ("agent memory forget 12", "so that no agent finds it again"),
    ),
    "state": (
        ("agent state show last_price -w price-watch", "a value, and what wrote it"),
        ("agent state set limit 20 --shared", "for all workflows"),
    ),
    "secrets": (("agent secrets --check", "read each, and show none"),),
    "db": (
        ("agent db backup monday.db", "a copy, while the agent runs"),
        ("agent db restore monday.db", "put it back; everything is paused then"),
        ("agent db prune --days 90 --dry-run", "count what would be removed"),
        ("agent db prune --days 90", "remove tasks that ended long ago"),
    ),
    "token": (
        ("agent token create phone --scope read", "for a program or a device"),
        ("agent token revoke phone", "it is refused from now on"),
    ),
    "completion": (
        ("source <(agent completion bash)", "for this shell"),
        ("agent completion zsh --install", "for every new shell"),
    ),
    "schema": (("agent schema --install", "let editors check and complete workflow files"),),
    "help": (
        ("agent help run", "options and examples of a command"),
        ("agent help --man | man -l -", "everything, as a man page"),
    ),
}
"""By command: what to type, and what it does."""

FIRST: Final = (
    ("agent init", "create an agent in this directory"),
    ("agent run hello --wait", "start a task and follow it"),
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
