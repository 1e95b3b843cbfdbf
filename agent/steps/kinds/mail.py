"""The `mail` kind: one message over SMTP, as an effect with an intent.

Its `Message-ID` is derived from the call's key for the remote, so that a repetition after an unknown
send is the same mail, and so that `reconcile` can look for it in the folder of sent mail. There it
means that the mail was sent; not there means nothing, since servers save sent mail late or never.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from agent.config.mail import MailSettings
from agent.steps.attempt.context import StepContext
from agent.steps.kinds import attachments as attached_files
from agent.steps.mail import sent_folder, smtp_errors
from agent.steps.mail.accounts import account_of, in_mailbox, refused
from agent.steps.mail.composition import Letter, message_id, written
from agent.steps.mail.imap_connection import ImapConnection, MailboxError
from agent.steps.mail.smtp_session import Delivery, Envelope, Login, SmtpSession
from agent.steps.spec.mail_addresses import Mailbox, parse_mailbox
from agent.steps.spec.mail_config import MailConfig
from agent.steps.types.attachment import Attachment
from agent.steps.types.call_records import RecordedCall
from agent.steps.types.call_types import Call, Request
from agent.steps.types.errors import Applied, DefiniteFailure
from agent.steps.types.outcome import Json, Outcome, Succeeded

Result = TypeVar("Result")


async def run(config: MailConfig, context: StepContext) -> Outcome:
    """Send the mail, and save a copy of it if the step asks for one."""
    name, account = account_of(config.account, context)
    limits = context.services.limits
    attachments = await asyncio.to_thread(
        attached_files.load, config.attach, limits.attach_from, limits.private_files
    )
    letter = _letter(config, account, attachments)
    sending = _Sending(config, context, name, account, letter)
    # Before the intent: a keyring's prompt may take longer than an effect may wait to start.
    await context.secrets.prefetch(account.password, frozenset({()}))
    answer = await context.perform(sending.request(), sending.perform)
    output = answer.response
    if config.save_sent and isinstance(output, dict):
        output = {**output, **await sending.save(output)}
    return Succeeded(output, idempotency_key=None if config.save_sent else answer.idempotency_key)


def _letter(config: MailConfig, account: MailSettings, attachments: list[Attachment]) -> Letter:
    replied = config.reply_to_mail
    subject = config.subject
    if subject is None:
        subject = replied.answer_subject() if replied is not None else ""
    headers = dict(config.headers)
    if replied is not None and "auto-submitted" not in {name.lower() for name in headers}:
        # Programs that answer mail by themselves do not answer this one (RFC 3834).
        headers["Auto-Submitted"] = "auto-replied"
    return Letter(
        sender=_sender(config.from_, account),
        to=config.to_shown,
        cc=config.cc,
        recipients=config.recipients,
        subject=subject,
        text=config.text,
        html=config.html,
        attachments=attachments,
        reply_to=config.reply_to,
        references=[] if replied is None else replied.thread(),
        headers=headers,
    )


def _sender(configured: Mailbox | None, account: MailSettings) -> Mailbox:
    """Return the sender: the account's own, or another of its addresses."""
    try:
        own, *others = [parse_mailbox(text) for text in (account.from_, *account.also_from)]
    except ValueError as error:
        raise refused(f"from or also_from of the account: {error}") from None
    if configured is None:
        return own
    for allowed in (own, *others):
        if allowed.address.lower() == configured.address.lower():
            return configured if configured.name else allowed
    known = ", ".join(mailbox.address for mailbox in (own, *others))
    raise refused(f"from: {configured.address} is not an address of the account, which has {known}")


class _Sending:
    """The call of one attempt that sends the mail, and the copy of it."""

    def __init__(
        self,
        config: MailConfig,
        context: StepContext,
        name: str,
        account: MailSettings,
        letter: Letter,
    ) -> None:
        self._config = config
        self._context = context
        self._name = name
        self._account = account
        self._letter = letter
        self._seconds = context.attempt_input.step.timeout_seconds or account.timeout_seconds

    def request(self) -> Request:
        """Return the request; its body identifies the mail in the ledger."""
        has_mailbox = self._account.imap is not None
        request = self._context.request(
            "mail.send",
            self._body(),
            on_unknown="reconcile" if has_mailbox else "ask",
            timeout=self._seconds,
            reconcile=self._reconcile if has_mailbox else None,
        )
        # With a copy to be saved, the answer of this call is not yet the step's output.
        return replace(request, settles_step=not self._config.save_sent)

    def _body(self) -> dict[str, Json]:
        letter = self._letter
        document: dict[str, Json] = {
            "account": self._name,
            "from": str(letter.sender),
            "to": [str(mailbox) for mailbox in letter.to],
            "cc": [str(mailbox) for mailbox in letter.cc],
            "bcc": [str(mailbox) for mailbox in self._config.bcc],
            "reply_to": [str(mailbox) for mailbox in letter.reply_to],
            "subject": letter.subject,
            "text": letter.text,
            "html": letter.html,
            "attachments": [
                attached_files.summary(attachment) for attachment in letter.attachments
            ],
            "references": letter.references,
            "headers": letter.headers,
        }
        return {key: value for key, value in document.items() if value}

    async def perform(self, call: Call) -> Json:
        """Send the mail; the answer says who gets it."""
        identity = message_id(call.remote_key, self._letter.sender)
        message = await self._written(identity)
        envelope = Envelope(
            self._letter.sender.address,
            [mailbox.address for mailbox in self._letter.recipients],
            self._letter.is_international,
        )
        limits = self._context.services.limits
        session = SmtpSession(self._name, self._account, limits.allow_private)
        delivery = await session.send(
            self._login(), envelope, message, self._may_go_on, self._seconds
        )
        for address, code, text in delivery.refused:
            reply = smtp_errors.reply_text(code, text)
            self._context.log(f"{address} was refused: {reply}; the others get the mail")
        return {
            **self._summary(identity, len(message)),
            "accepted": delivery.accepted,
            "refused": [
                {"address": address, "reply": smtp_errors.reply_text(code, text)}
                for address, code, text in delivery.refused
            ],
            "reply": delivery.reply,
        }

    def _may_go_on(self, delivery: Delivery) -> None:
        """Refuse to send, before DATA, where recipients were refused and the step wants them all.

        Those that are refused for now are tried again with all others, while attempts are left: a
        later mail to them alone would be another mail.
        """
        if not delivery.refused:
            return
        codes = [code for _, code, _ in delivery.refused]
        shown = "; ".join(
            f"{address}: {smtp_errors.reply_text(code, text)}"
            for address, code, text in delivery.refused[:10]
        )
        all_or_some = "some of the recipients" if delivery.accepted else "the recipients"
        message = f"{self._account.host} refused {all_or_some}; the mail was not sent ({shown})"
        is_for_now = any(code < 500 for code in codes)
        has_final = any(code >= 500 for code in codes)
        must_fail = not delivery.accepted or self._config.on_refused == "fail"
        if must_fail and has_final and not (is_for_now and not delivery.accepted):
            raise DefiniteFailure(message, code="recipients_refused", may_retry=False)
        is_last = self._context.attempt >= self._context.max_attempts
        if is_for_now and (must_fail or not is_last):
            raise DefiniteFailure(
                f"{message}; they may be accepted later",
                code="recipients_refused",
                delay_seconds=smtp_errors.GREYLIST_SECONDS,
            )

    def _login(self) -> Login | None:
        account = self._account
        if not account.user:
            return None
        try:
            password: str = self._context.secrets.resolve(account.password, frozenset({()}))
        except DefiniteFailure as error:
            raise DefiniteFailure(
                f"password of [mail.{self._name}]: {error}",
                code=error.error.code,
                kind=error.error.kind,
                may_retry=False,
            ) from None
        return Login(account.user, password)

    async def _written(self, identity: str) -> bytes:
        now = self._context.services.clock.now()
        try:
            return await asyncio.to_thread(written, self._letter, identity, now)
        except Exception as error:
            # Nothing is sent yet: whatever the standard library refuses is a definite failure.
            raise refused(f"the mail cannot be written: {error}") from error

    def _summary(self, identity: str, size: int | None) -> dict[str, Json]:
        letter = self._letter
        return {
            "message_id": identity,
            "account": self._name,
            "from": str(letter.sender),
            "to": [str(mailbox) for mailbox in letter.to],
            "cc": [str(mailbox) for mailbox in letter.cc],
            "bcc": [str(mailbox) for mailbox in self._config.bcc],
            "subject": letter.subject,
            "size": size,
        }

    async def _reconcile(self, call: RecordedCall) -> Applied | None:
        """Look for the mail in the folder of sent mail; None when it is not there, or not yet."""
        identity = message_id(call.remote_key, self._letter.sender)
        assert self._account.imap is not None
        folder = self._account.imap.folder
        try:
            is_there = await self._in_mailbox(
                lambda mailbox: sent_folder.has_message(mailbox, folder, identity)
            )
        except (MailboxError, TimeoutError) as error:
            self._context.log(f"reconcile: whether the mail was sent is still unknown: {error}")
            return None
        if not is_there:
            self._context.log(
                f"reconcile: {identity} is not in the folder of sent mail. It may have been sent all"
                " the same: many servers save sent mail late, or not at all"
            )
            return None
        return Applied(
            {
                **self._summary(identity, None),
                "accepted": [mailbox.address for mailbox in self._letter.recipients],
                "refused": [],
                "reconciled": True,
            }
        )

    async def save(self, output: dict[str, Json]) -> dict[str, Json]:
        """Save a copy of the mail that was sent; return its part of the output."""
        if self._account.imap is None:
            problem = f"[mail.{self._name}.imap] is missing"
            return {"saved": False, "save_problem": problem}
        if not self._context.attempt_input.may_act:
            return {
                "saved": False,
                "save_problem": "the last attempt ended before the copy was saved",
            }
        identity = str(output["message_id"])
        request = Request(
            "mail.save",
            {"message_id": identity},
            on_unknown="retry",
            timeout_seconds=self._seconds,
            is_effect=False,
        )
        answer = await self._context.perform(request, lambda _: self._append(identity))
        report: dict[str, Json] = answer.response
        return report

    async def _append(self, identity: str) -> Json:
        """Add the copy unless it is there; a failure is reported, and never repeats the sending."""
        assert self._account.imap is not None
        folder = self._account.imap.folder
        message = await self._written(identity)
        try:
            await self._in_mailbox(
                lambda mailbox: sent_folder.append(mailbox, folder, message, identity)
            )
        except Exception as error:
            text = str(error) or "the server did not answer in time"
            self._context.log(f"the mail was sent, and its copy was not saved: {text}")
            return {"saved": False, "save_problem": text}
        return {"saved": True}

    async def _in_mailbox(self, function: Callable[[ImapConnection], Result]) -> Result:
        seconds = min(self._context.services.limits.call_seconds, self._seconds / 2)
        return await in_mailbox(self._account, self._context, seconds, function)
