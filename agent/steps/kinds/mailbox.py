"""The `mailbox` kind: moves, labels or flags one message over IMAP, as an effect with an intent.

Every change may be made twice, so that an unknown one is simply made again.
"""

from collections.abc import Sequence

from agent.steps.attempt.context import StepContext
from agent.steps.mail.accounts import account_of, in_mailbox, refused
from agent.steps.mail.imap_connection import ImapConnection, MailboxError
from agent.steps.mail.message_changes import ChangeRefusedError, Changes, change
from agent.steps.spec.mailbox_config import MailboxConfig
from agent.steps.types.call_types import Call
from agent.steps.types.errors import DefiniteFailure, UnknownOutcomeError
from agent.steps.types.outcome import Json, Outcome, StepError, Succeeded


async def run(config: MailboxConfig, context: StepContext) -> Outcome:
    """Change the message; the output says which folder it is in."""
    name, account = account_of(config.account, context)
    if account.imap is None:
        raise refused(f"[mail.{name}.imap] is missing: the mailbox of the account")
    message_id, folder = config.mail.message_id, config.mail.folder
    assert message_id is not None
    changes = Changes(
        flags=_flags(config.flag),
        removed_flags=_flags(config.unflag),
        labels=config.label,
        removed_labels=config.unlabel,
        move=config.move,
    )
    seconds = context.attempt_input.step.timeout_seconds or account.timeout_seconds
    keys = account.imap_keys()
    assert keys is not None
    # Before the intent: a keyring's prompt may take longer than an effect may wait to start.
    await context.secrets.prefetch(keys["password"], frozenset({()}))

    async def perform(_: Call) -> Json:
        begun: list[bool] = []

        def work(connection: ImapConnection) -> str:
            return change(connection, folder, message_id, changes, lambda: begun.append(True))

        try:
            now_in = await in_mailbox(account, context, seconds, work)
        except (MailboxError, TimeoutError) as error:
            text = str(error) or f"the mailbox of {name} did not answer in time"
            if begun and not isinstance(error, ChangeRefusedError):
                text = f"{text}; whether the message was changed is unknown"
                raise UnknownOutcomeError(StepError("unknown_outcome", "unknown", text)) from None
            raise _failure(text, error) from None
        return {"message_id": message_id, "folder": now_in, "account": name}

    body: dict[str, Json] = {"account": name, **config.model_dump(exclude={"account"})}
    body = {key: value for key, value in body.items() if value}
    request = context.request("mailbox.change", body, on_unknown="retry", timeout=seconds)
    answer = await context.perform(request, perform)
    return Succeeded(answer.response, idempotency_key=answer.idempotency_key)


def _failure(text: str, error: Exception) -> DefiniteFailure:
    is_final = isinstance(error, ChangeRefusedError) or getattr(error, "is_final", False)
    return DefiniteFailure(
        text,
        code="mailbox",
        kind="remote" if is_final else "transport",
        may_retry=not is_final,
        delay_seconds=getattr(error, "retry_seconds", None),
    )


def _flags(names: Sequence[str]) -> list[str]:
    return [f"\\{name.capitalize()}" for name in names]
