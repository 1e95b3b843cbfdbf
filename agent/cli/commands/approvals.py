"""`agent approvals`, `approve`, `deny`, `answer` and `defer`: questions to people, and answers."""

from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from agent.cli import session
from agent.cli.options import JsonOption, LimitOption, NoInputOption, WaitOption
from agent.cli.parameters import Argument, Option

if TYPE_CHECKING:
    from agent.approvals.answering import AnswerVerb

ApprovalArgument = Annotated[
    str, Argument(metavar="ID", help="An approval's id, or the unique start or end of one.")
]


class FollowOptions(NamedTuple):
    """Whether and how to follow the task after an answer."""

    wait: bool
    no_input: bool
    as_json: bool


def approvals(
    approval: Annotated[
        str | None, Argument(metavar="ID", help="Show this question in full.")
    ] = None,
    *,
    show_all: Annotated[
        bool, Option("--all", help="Also the decided ones, the newest first.")
    ] = False,
    limit: LimitOption = 100,
    as_json: JsonOption = False,
) -> None:
    """List open questions, or show one in full."""
    from agent.cli.output import terminal

    with session.client() as client:
        if approval is not None:
            document = client.approval(client.find_approval(approval))
            terminal.print_json(document) if as_json else _print_one(document)
            return
        questions = client.approvals(is_all=show_all, limit=limit)
    if as_json:
        terminal.print_json(questions)
    elif not questions:
        terminal.print_line("no questions yet" if show_all else "no open questions")
    else:
        headings = ("id", "task", "step", "kind", "status", "asked", "expires", "question")
        terminal.print_table(headings, [_row(entry) for entry in questions])


def approve(
    approval: ApprovalArgument,
    comment: Annotated[str | None, Option("--comment", help="Stored with the answer.")] = None,
    edits: Annotated[
        list[str] | None,
        Option("--set", metavar="KEY=VALUE", help="Approve with this change; may be repeated."),
    ] = None,
    *,
    wait: WaitOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Approve: the step runs as shown, with the changes of --set."""
    follow = FollowOptions(wait, no_input, as_json)
    _answer(approval, "approve", follow, comment=comment, edits=edits)


def deny(
    approval: ApprovalArgument,
    reason: Annotated[
        str | None, Option("--reason", help="Becomes part of the step's error.")
    ] = None,
    *,
    wait: WaitOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Deny: the step fails."""
    _answer(approval, "deny", FollowOptions(wait, no_input, as_json), comment=reason)


def answer(
    approval: ApprovalArgument,
    value: Annotated[
        str,
        Argument(
            metavar="VALUE|JSON",
            help="A text, a choice, JSON; or done, retry, fail. - reads standard input.",
        ),
    ],
    comment: Annotated[str | None, Option("--comment", help="Stored with the answer.")] = None,
    *,
    wait: WaitOption = False,
    no_input: NoInputOption = False,
    as_json: JsonOption = False,
) -> None:
    """Answer a question with a value.

    For an unknown effect: done (it happened), retry (it did not) or fail.
    """
    import sys

    text = sys.stdin.read().removesuffix("\n") if value == "-" else value
    follow = FollowOptions(wait, no_input, as_json)
    _answer(approval, "answer", follow, comment=comment, text=text)


def defer(
    approval: ApprovalArgument,
    time: Annotated[str, Argument(metavar="TIME", help="How long to wait, as in 30m, 4h or 1d.")],
    *,
    as_json: JsonOption = False,
) -> None:
    """Be reminded of a question later.

    The question stays open, and its expiry does not change.
    """
    from agent.cli.errors import CommandError
    from agent.cli.output import terminal
    from agent.workflows.durations import parse_duration

    session.require_person("answer a question")
    try:
        seconds = parse_duration(time)
    except ValueError as error:
        raise CommandError(f"{time}: {error}") from None
    with session.client() as client:
        approval_id = client.find_approval(approval)
        client.defer(approval_id, seconds)
        document = client.approval(approval_id)
    if as_json:
        terminal.print_json(document)
    else:
        terminal.print_line(
            f"{terminal.short(approval_id)}: deferred until {terminal.moment(document['remind_at'])}"
        )


def _answer(
    approval: str,
    decision: "AnswerVerb",
    follow: FollowOptions,
    *,
    comment: str | None = None,
    text: str | None = None,
    edits: list[str] | None = None,
) -> None:
    """Find the question, answer it as the user of this terminal, and print the result.

    With `wait` the task is followed then, and the document that --json prints is the task's.
    """
    from agent.cli.commands import run
    from agent.cli.output import terminal

    session.require_person("answer a question")
    with session.client() as client:
        approval_id = client.find_approval(approval)
        value = None if text is None else _value(client.approval(approval_id), text)
        changes = _edits(client.approval(approval_id), edits) if edits else None
        client.decide(approval_id, decision, comment=comment, value=value, edits=changes)
        document = client.approval(approval_id)
        if follow.as_json and not follow.wait:
            terminal.print_json(document)
            return
        if not follow.as_json:
            terminal.print_line(
                f"{terminal.short(approval_id)}: {document['status']} (step {document['step']})"
            )
        if follow.wait:
            run.follow_to_end(
                client, document["task"], as_json=follow.as_json, no_input=follow.no_input
            )
        if document["task_status"] == "running":
            run.warn_if_no_worker(client)


def _value(document: dict[str, Any], text: str) -> Any:
    """Parse a typed answer by the type that the question asks for."""
    from agent.core.key_values import parse_value
    from agent.steps.spec.questions import read_answer

    if document["kind"] != "unknown":
        return read_answer(text, document["choices"], document["schema"])
    return parse_value(text)


def _edits(document: dict[str, Any], pairs: list[str]) -> dict[str, Any]:
    """Read `--set key=value` by the types of the shown values, and print each change."""
    from agent.cli import inputs
    from agent.cli.errors import CommandError
    from agent.cli.output import terminal
    from agent.steps.spec.questions import read_edits, value_at

    request = document["request"]
    config = request.get("config") if isinstance(request, dict) else None
    try:
        edits = read_edits(config, inputs.typed_pairs(pairs, "--set"))
    except ValueError as error:
        raise CommandError(f"--set {error}") from None
    for path, value in edits.items():
        before = terminal.one_line(value_at(config, path), 100)
        terminal.note(f"{path}: {before} → {terminal.one_line(value, 100)}")
    return edits


def _row(entry: dict[str, Any]) -> tuple[str, ...]:
    from agent.cli.output import terminal
    from agent.core.waits import headline

    return (
        terminal.short(entry["id"]),
        terminal.short(entry["task"]),
        entry["step"],
        entry["kind"],
        entry["status"],
        terminal.ago(entry["created_at"]),
        terminal.moment(entry["expires_at"]),
        terminal.one_line(headline(entry["message"]), 80),
    )


def _print_one(document: dict[str, Any]) -> None:
    """Print a question with everything that an answer would approve."""
    from agent.cli.output import question_view, terminal
    from agent.cli.output.terminal import print_line

    question_view.print_question(document)
    if document["decision"]:
        print_line("decision:", "bold")
        print_line(terminal.to_json_text(document["decision"]))
    else:
        print_line(f"  {question_view.how_to_answer(document)}")
