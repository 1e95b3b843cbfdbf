"""Parsing of commands, the scopes they need, and the replies to those that fail."""

import re

import pytest

from agent.approvals.permission import NotAllowedError, Principal
from agent.channels.chat import commands
from agent.channels.chat.command_handler import CommandHandler
from agent.channels.chat.commands import COMMANDS, Command, CommandError, check, parse
from agent.core.scopes import SCOPES, implied
from agent.server.application import ROUTES
from agent.store.db.database import Database
from agent.workflows.compile.compiler import compile_text
from agent.workflows.diagnostics import WorkflowError

OWNER = Principal("terminal", "ada", implied(SCOPES))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/status", Command("status")),
        ("  /STATUS@our_bot ", Command("status")),
        ("/tasks", Command("tasks")),
        ("/tasks failed", Command("tasks", "failed")),
        ("/deny abc", Command("deny", "abc")),
        ("/deny abc  because of\nthis ", Command("deny", "abc", "because of\nthis")),
        ("/run x a=1 b='two words'", Command("run", "x", None, {"a": "1", "b": "two words"})),
        ("/run x a==", Command("run", "x", None, {"a": "="})),
        ("/sort most=7", Command("sort", None, None, {"most": "7"})),
    ],
)
def test_reading(text: str, expected: Command) -> None:
    """A command, its subject, and the rest as that command takes it."""
    assert parse(text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "begin with a slash"),
        ("/", "begin with a slash"),
        ("hello", "begin with a slash"),
        ("/a.b", "there is no command /a.b"),
        ("/status now", "write it as /status"),
        ("/pause", "write it as /pause TASK [REASON]"),
        ("/run", "write it as /run WORKFLOW"),
        ("/run x a", "a: write it as /run"),
        ("/run x =1", "=1: write it as /run"),
        ("/show x", "x: write it as /show [KEY=VALUE]…; /help lists the commands"),
        ("/run x a=1 a=2", "a: given twice"),
        ("/run x 'a", "a quotation mark is missing"),
        ("/deny abc " + "x" * 10_000, "longer than 10,000 characters"),
    ],
)
def test_a_malformed_command_is_refused(text: str, problem: str) -> None:
    """The message says what would be right."""
    with pytest.raises(CommandError, match=re.escape(problem)):
        parse(text)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("/frobnicate", "there is no command /frobnicate"),
        ("/run nothing", "there is no workflow 'nothing'"),
        ("/task 0", "not a valid task id"),
        ("/cancel abcdef", "there is no task"),
        ("/approve 0199-nothing", "not a valid approval id"),
        ("/approve abcdef", "there is no approval"),
        ("/tasks nonsense", "there is no activity 'nonsense'"),
        ("/defer abcdef soon", "is not a duration"),
        ("/tasks", "no tasks"),
        ("/approvals", "no open questions"),
        ("/schedules", "no schedules"),
        ("/watchers", "no watchers"),
        ("/schedules skip", "write it as /schedules [show|pause|resume|run|skip|backfill NAME]"),
        ("/schedules pause", "write it as /schedules pause NAME [UNTIL]"),
        ("/schedules backfill x", "write it as /schedules backfill NAME FROM [TO] [dry-run]"),
        ("/schedules resume x later", "write it as /schedules resume NAME [catch-up]"),
        ("/watchers reset", "write it as /watchers [show|pause|resume|run|check|reset NAME]"),
        ("/watchers run x now", "write it as /watchers [show|"),
        ("/watchers check x", "this process polls no watchers"),
        ("/schedules run daily", "there is no schedule 'daily'"),
        ("hello", "commands begin with a slash"),
        ("/status", "tasks: none yet"),
    ],
)
def test_a_failing_command_gets_a_helpful_reply(
    sqlite_database: Database, text: str, answer: str
) -> None:
    """Whatever is typed gets a reply."""
    assert answer in CommandHandler(sqlite_database, 100).reply(OWNER, text)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_needs_its_scope(name: str) -> None:
    """A command needs its scope, and in a chat a paired account."""
    needed = COMMANDS[name].scope
    for scope in SCOPES:
        principal = Principal("telegram", "1", implied([scope]), is_paired=True)
        if needed in implied([scope]):
            check(principal, Command(name))
        else:
            with pytest.raises(NotAllowedError, match=f"needs the scope {needed!r}"):
                check(principal, Command(name))
    with pytest.raises(NotAllowedError, match="not paired"):
        check(Principal("telegram", "1", implied(SCOPES)), Command(name))


def test_scopes_are_those_of_the_api() -> None:
    """A command needs the scope of the route that does the same."""
    routes = {
        "tasks": "GET /tasks",
        "task": "GET /tasks/{task_id}",
        "why": "GET /tasks/{task_id}",
        "run": "POST /workflows/{name}/tasks",
        "pause": "POST /tasks/{task_id}/pause",
        "resume": "POST /tasks/{task_id}/resume",
        "cancel": "POST /tasks/{task_id}/cancel",
        "retry": "POST /tasks/{task_id}/retry",
        "schedules": "GET /triggers",
        "watchers": "GET /triggers",
        "approvals": "GET /approvals",
        "approve": "POST /approvals/{approval_id}/approve",
        "edit": "POST /approvals/{approval_id}/approve",
        "deny": "POST /approvals/{approval_id}/deny",
        "answer": "POST /approvals/{approval_id}/answer",
        "defer": "POST /approvals/{approval_id}/defer",
    }
    scopes = {
        f"{endpoint.method} {endpoint.path.removeprefix('/api/v1')}": endpoint.scope
        for registry in ROUTES
        for endpoint in registry.endpoints
    }
    assert {name: word.scope for name, word in COMMANDS.items()} == {
        "status": "read",
        "open": "read",
        "help": "read",
        **{name: scopes[route] for name, route in routes.items()},
    }


def test_help_lists_what_the_caller_may_do() -> None:
    """What needs another scope is not in the list."""
    reader = Principal("telegram", "1", implied(["read"]), is_paired=True)
    assert "/approve" not in commands.help_text(reader, {"sort": "sort the post"})
    assert "/sort" not in commands.help_text(reader, {"sort": "sort the post"})
    everything = commands.help_text(OWNER, {"sort": "sort the post"})
    assert all(f"/{name}" in everything for name in (*COMMANDS, "sort"))


@pytest.mark.parametrize("name", ["status", "approve", "start"])
def test_a_workflow_cannot_take_a_command_of_ours(name: str) -> None:
    """`on: chat` with the agent's own command is a mistake in the file."""
    text = f"name: x\non: {{chat: {{command: {name}}}}}\nsteps: {{a: {{wait: 1s}}}}\n"
    with pytest.raises(WorkflowError, match="command of the agent's own"):
        compile_text(text, "x.yaml")
