"""Every command as data: its name, its module, its group in the help, and one line about it.

The help, completion and the man page read this table; only the module of the command that runs is
imported. To add a command: a function in a module of `agent.cli.commands`, and a line here. A test
compares each line with the docstring of its command.
"""

from typing import Final, NamedTuple

SET_UP: Final = "Set up and run the agent"
WORKFLOWS: Final = "Workflows"
TASKS: Final = "Tasks"
CONTROL: Final = "Control tasks"
QUESTIONS: Final = "Questions to people"
TRIGGERS: Final = "Schedules and watchers"
WORKERS: Final = "Workers"
CHAT: Final = "Chat"
MEMORY: Final = "Memory and state"
ADMINISTRATION: Final = "Administration"

GROUPS: Final = (
    SET_UP,
    WORKFLOWS,
    TASKS,
    CONTROL,
    QUESTIONS,
    TRIGGERS,
    WORKERS,
    CHAT,
    MEMORY,
    ADMINISTRATION,
)
"""The groups of commands, in the order of the help."""


class Command(NamedTuple):
    """One command of the program."""

    name: str
    group: str
    module: str
    """The module in `agent.cli.commands`."""
    attribute: str
    """The function in that module, or the `typer.Typer` of a command that has its own commands."""
    help: str
    """One line, at most 60 characters."""


COMMANDS: Final = (
    Command("init", SET_UP, "init", "init", "Create a configuration, a first workflow and the database."),
    Command("up", SET_UP, "up", "up", "Start the agent."),
    Command("status", SET_UP, "status", "status", "Show the agent at a glance, and what needs you."),
    Command("open", SET_UP, "dashboard", "open_dashboard", "Open the dashboard in a browser, signed in."),
    Command("reload", SET_UP, "reload", "reload", "Let the running agent apply its changed configuration."),
    Command("stop", SET_UP, "stop", "stop", "Stop the running agent, and wait until it has ended."),
    Command("service", SET_UP, "service", "app", "Run the agent as a service of systemd or launchd."),
    Command("config", SET_UP, "config", "app", "Print the settings in force, with their sources, or set one."),
    Command("doctor", SET_UP, "doctor", "doctor", "Check configuration, workflows, database and agent."),
    Command("mcp", SET_UP, "mcp", "mcp", "Serve tools for MCP clients, such as coding agents."),
    Command("completion", SET_UP, "completion", "completion", "Print or install completion for bash, zsh or fish."),
    Command("help", SET_UP, "help", "help_", "Show this help, the help of a command, or the man page."),
    Command("version", SET_UP, "version", "version", "Print the versions of the program and of Python."),
    Command("run", WORKFLOWS, "run", "run", "Start a workflow."),
    Command("validate", WORKFLOWS, "validate", "validate", "Check workflow files without running them."),
    Command("workflows", WORKFLOWS, "workflows", "app", "List, show and compare workflows."),
    Command("examples", WORKFLOWS, "examples", "examples", "List the example workflows, or print one."),
    Command("schema", WORKFLOWS, "schema", "schema", "Print the JSON Schema of workflow files, for editors."),
    Command("tasks", TASKS, "tasks", "tasks", "List tasks, the newest first."),
    Command("show", TASKS, "tasks", "show", "Show a task, or one of its steps with all its attempts."),
    Command("watch", TASKS, "watch", "watch", "Follow a task until it ends or waits for a person."),
    Command("logs", TASKS, "logs", "logs", "Print the output that a task's steps wrote."),
    Command("events", TASKS, "events", "events", "Print the newest events; with --follow those from now on."),
    Command("top", TASKS, "top", "top", "Watch workers, slots, queue, slowest steps and spend."),
    Command("artifact", TASKS, "artifact", "artifact", "Print a large value by its hash."),
    Command("budget", TASKS, "budget", "budget", "Show model usage, or raise a task's budget."),
    Command("pause", CONTROL, "control", "pause", "Pause a task: no new step starts."),
    Command("resume", CONTROL, "control", "resume", "Resume a paused task."),
    Command("cancel", CONTROL, "control", "cancel", "Cancel a task and stop its running steps."),
    Command("retry", CONTROL, "control", "retry", "Retry what did not succeed, in a new task."),
    Command("fork", CONTROL, "control", "fork", "Run again from the beginning, or from a step on, in a new task."),
    Command("resolve", CONTROL, "control", "resolve", "Resolve an unknown effect: its result was never recorded."),
    Command("signal", CONTROL, "control", "signal", "Send a signal to a task; it is kept until a step takes it."),
    Command("approvals", QUESTIONS, "approvals", "approvals", "List open questions, or show one in full."),
    Command("approve", QUESTIONS, "approvals", "approve", "Approve: the step runs as shown, with the changes of --set."),
    Command("deny", QUESTIONS, "approvals", "deny", "Deny: the step fails."),
    Command("answer", QUESTIONS, "approvals", "answer", "Answer a question with a value."),
    Command("defer", QUESTIONS, "approvals", "defer", "Be reminded of a question later."),
    Command("schedules", TRIGGERS, "schedules", "app", "List and control schedules."),
    Command("watchers", TRIGGERS, "watchers", "app", "List and control watchers."),
    Command("triggers", TRIGGERS, "triggers", "triggers", "List schedules and watchers."),
    Command("queue", WORKERS, "queue", "app", "List queues, requeue dead letters, work on steps."),
    Command("worker", WORKERS, "up", "worker", "Start one more worker, on PostgreSQL."),
    Command("job", WORKERS, "job", "job", "Run one job that an agent has submitted to a cluster."),
    Command("chat", CHAT, "chat", "chat", "Talk to the assistant and run the commands of chats."),
    Command("conversations", CHAT, "conversations", "app", "List, show and delete what is kept of conversations."),
    Command("pair", CHAT, "pairing", "pair", "Pair a chat account, so that it may use the agent."),
    Command("pairings", CHAT, "pairing", "app", "List and remove paired chat accounts."),
    Command("notify", CHAT, "notify", "app", "Try whether notices arrive."),
    Command("memory", MEMORY, "memory", "app", "List, search, add and forget memories of agents."),
    Command("state", MEMORY, "state", "app", "List and change the values that outlive tasks."),
    Command("secrets", ADMINISTRATION, "secrets", "secrets", "List references to secrets, and where each resolves from."),
    Command("db", ADMINISTRATION, "db", "app", "Upgrade, back up, restore and prune the database."),
    Command("token", ADMINISTRATION, "token", "app", "Create, list and revoke tokens and browser sessions."),
)  # fmt: skip
"""Every command, in the order of the help."""


class GlobalOption(NamedTuple):
    """An option that stands before the command."""

    names: tuple[str, ...]
    metavar: str
    help: str


CONFIG: Final = GlobalOption(
    ("--config",), "FILE", "The configuration; default: config.toml here or above."
)
SET: Final = GlobalOption(("-c",), "KEY=VALUE", "Set a key of the configuration for this command.")
SERVER: Final = GlobalOption(("--server",), "URL", "A remote agent; AGENT_TOKEN holds its token.")
VERBOSE: Final = GlobalOption(
    ("-v", "--verbose"), "", "Say which configuration and database are used."
)
VERSION: Final = GlobalOption(("--version",), "", "Print the version and exit.")
HELP: Final = GlobalOption(("-h", "--help"), "", "Show this message and exit.")

GLOBAL_OPTIONS: Final = (CONFIG, SET, SERVER, VERBOSE, VERSION, HELP)
