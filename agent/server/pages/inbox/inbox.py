"""The inbox: everything that waits for a person, and the actions that answer it."""

from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from agent.approvals import answering, approval_documents
from agent.approvals.answering import DecidedError, InvalidAnswerError
from agent.channels.chat import message_texts
from agent.core.clock import to_iso
from agent.core.waits import headline
from agent.server.context import caller, context_of
from agent.server.pages.framework import rendering
from agent.server.pages.framework.page_registry import PageRegistry
from agent.server.pages.framework.page_request import Form, PageRequest
from agent.server.pages.inbox import budget_cards, question_cards
from agent.server.pages.inbox.answer_form import answer_in
from agent.store.db.database import Connection
from agent.store.read import attention

pages = PageRegistry("inbox")

_MOST_QUESTIONS: Final = 30
_MOST: Final = 20
_RECENT: Final = 5
_VERDICTS: Final = {"done": "It happened", "retry": "It did not happen", "fail": "Given up"}
EVERY_SECONDS: Final = 15
"""Triggers change without events of tasks."""


@pages.page("/", "inbox.html", every_seconds=EVERY_SECONDS)
def inbox(connection: Connection, request: PageRequest) -> dict[str, Any]:
    """Return the open questions and everything else that waits for a person."""
    questions = approval_documents.list_approvals(
        connection, limit=_MOST_QUESTIONS + 1, after=request.query.get("cursor") or None
    )
    shown = questions[:_MOST_QUESTIONS]
    cards = question_cards.cards(connection, request, shown)
    return {
        "cards": [card for card in cards if not card.is_deferred],
        "deferred": [card for card in cards if card.is_deferred],
        "deferrals": question_cards.DEFERRALS,
        "next": request.url(cursor=shown[-1]["id"]) if len(questions) > len(shown) else None,
        "first": request.url(cursor=None) if request.query.get("cursor") else None,
        "budgets": budget_cards.cards(connection),
        "triggers": [
            {**row, "last_ok_at": to_iso(row["last_ok_at"])}
            for row in attention.troubled_triggers(connection, _MOST)
        ],
        "missed": [
            {**row, "nominal_at": to_iso(row["nominal_at"]), "until_at": to_iso(row["until_at"])}
            for row in attention.missed_schedules(connection, _MOST)
        ],
        "decided": [
            (document, message_texts.decision(document))
            for document in approval_documents.recently_decided(connection, _RECENT)
        ],
    }


@pages.page("/questions/{approval_id}", "question_page.html")
def question(connection: Connection, request: PageRequest) -> dict[str, Any]:
    """Return one question; of a decided one, the decision."""
    document = approval_documents.approval_document(connection, request.params["approval_id"])
    is_open = document["status"] == "pending"
    return {
        "question": document,
        "cards": question_cards.cards(connection, request, [document]) if is_open else [],
        "deferrals": question_cards.DEFERRALS,
        "decision": None if is_open else message_texts.decision(document),
        "live_tasks": [document["task"]],
    }


@pages.action("/questions/{approval_id}/answer", scope="approve")
async def answer_question(request: Request, form: Form) -> Response:
    """Answer a question; a refused answer shows the question again with the typed text."""
    context, approval_id = context_of(request), request.path_params["approval_id"]
    document = await context.read_pool.read(
        lambda connection: approval_documents.approval_document(connection, approval_id)
    )
    try:
        details = answer_in(document, form)
        result = await context.command_pool.run(
            lambda: answering.answer(
                context.database, approval_id, principal=caller(request).principal, **details
            )
        )
    except InvalidAnswerError as error:
        return await rendering.respond(
            request,
            question,
            status=422,
            problem=rendering.sentence(error),
            typed={**form, "question": approval_id},
        )
    except DecidedError as error:
        rendering.add_notice(request, f"Your answer came too late: {error}.", is_problem=True)
        return rendering.redirect(request, rendering.back_of(form))
    notice = f"{result.status.capitalize()}: {headline(document['message'])}"
    if document["kind"] == "unknown":
        verdict = form["decision"]
        notice = (
            f"{_VERDICTS[verdict]}: step {document['step']!r} {answering.VERDICT_WORDS[verdict]}."
        )
    return rendering.redirect(request, rendering.back_of(form), message_texts.cut(notice, 200))


@pages.action("/questions/{approval_id}/defer", scope="approve")
async def defer_question(request: Request, form: Form) -> Response:
    """Be reminded of a question later."""
    context, approval_id = context_of(request), request.path_params["approval_id"]
    try:
        seconds = float(form.get("seconds", ""))
    except ValueError:
        raise InvalidAnswerError("choose a time") from None
    await context.command_pool.run(
        lambda: answering.defer(
            context.database, approval_id, seconds, principal=caller(request).principal
        )
    )
    later = question_cards.DEFERRALS.get(form["seconds"], f"{seconds:g} s")
    return rendering.redirect(request, rendering.back_of(form), f"You will be reminded in {later}.")
