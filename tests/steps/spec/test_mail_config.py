from typing import Any

import pytest
from pydantic import ValidationError

from agent.server.pages.framework.templates import headed
from agent.steps.spec.configs import RENDERED
from agent.steps.spec.mail_addresses import parse_mailbox
from agent.steps.spec.mail_config import MailConfig, RepliedMail, answered_mail, complete

MAIL = {"to": "bob@example.org", "subject": "Hello", "text": "Hi"}
ITEM = {
    "uid": 7,
    "message_id": "<3@example.org>",
    "references": ["<1@example.org>", "<2@example.org>"],
    "in_reply_to": "<2@example.org>",
    "from": {"name": "Doe, Bob", "address": "bob@example.org"},
    "reply_to": [],
    "subject": "AW: Re: the\r\nplan",
    "text": "long",
}


def problem(**keys: Any) -> str:
    """Return why a rendered configuration is refused."""
    config = {key: value for key, value in {**MAIL, **keys}.items() if value is not None}
    with pytest.raises(ValidationError) as caught:
        MailConfig.model_validate(config, context=RENDERED)
    return str(caught.value)


@pytest.mark.parametrize(
    ("written", "name", "address"),
    [
        ("ann@example.org", "", "ann@example.org"),
        (" Ann <ann@Example.ORG> ", "Ann", "ann@example.org"),
        ('"Doe, Ann" <ann@example.org>', "Doe, Ann", "ann@example.org"),
        ("Jörg <jörg@bücher.example>", "Jörg", "jörg@xn--bcher-kva.example"),
        ({"name": "Ann", "address": "ann@example.org"}, "Ann", "ann@example.org"),
        ({"name": "", "address": "o'hara+x@example.org"}, "", "o'hara+x@example.org"),
        ("J. Doe, Dr. <ann@example.org>", "J. Doe, Dr.", "ann@example.org"),
        ("ann@[127.0.0.1]", "", "ann@[127.0.0.1]"),
    ],
)
def test_addresses(written: object, name: str, address: str) -> None:
    """An address is a text with or without a name, or what a watched mail shows."""
    mailbox = parse_mailbox(written)
    assert (mailbox.name, mailbox.address) == (name, address)
    assert parse_mailbox(str(mailbox)) == mailbox


@pytest.mark.parametrize(
    "written",
    [
        "ann",
        "ann@",
        "@example.org",
        "a b@example.org",
        "ann@exa_mple.org",
        "=?utf-8?q?=0d=0a?=@example.org",
        "ann@-a.org",
        "Ann <ann@example.org",
        "ann@example.org\nBcc: eve@example.org",
        "ann@example.org, eve@example.org",
        'Ann <ann@example.org>, "x" <eve@example.org>',
        "eve@example.org> <ann@example.org",
        "an\u2028n@example.org",
        "eve@example.org, Ann <ann@example.org>",
        "a" * 65 + "@example.org",
        {"name": "x\r\nBcc: eve@example.org", "address": "ann@example.org"},
        {"address": "ann@example.org", "more": 1},
        7,
        "",
    ],
)
def test_what_is_not_one_address_is_refused(written: object) -> None:
    """No text adds a recipient or a header, whatever a template puts into it."""
    with pytest.raises(ValueError):
        parse_mailbox(written)


def test_several_addresses_are_a_list() -> None:
    """The message says how to write them."""
    assert "write a list of them" in problem(to="a@example.org, b@example.org")
    config = MailConfig.model_validate({**MAIL, "cc": ["a@example.org", "", None]})
    assert [each.address for each in config.cc] == ["a@example.org"]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"to": None}, "give to, cc or bcc"),
        ({"subject": None}, "give a subject"),
        ({"text": None}, "give text or html"),
        ({"subject": "a\r\nBcc: eve@example.org"}, "must be one line"),
        ({"headers": {"X-A": "1\nBcc: eve@example.org"}}, "must be one line"),
        ({"subject": "a\x1eBcc: eve@example.org"}, "must be one line"),
        ({"headers": {"X A": "1"}}, "is not the name of a header"),
        ({"headers": {"Bcc": "eve@example.org"}}, "is set by the key bcc"),
        ({"headers": {"Message-Id": "<1@x>"}}, "is set by the agent"),
        ({"headers": {"Content-Type": "text/html"}}, "is set by the agent"),
        ({"headers": {f"X-{number}": "1" for number in range(21)}}, "at most 20"),
        ({"to": [f"a{number}@example.org" for number in range(101)]}, "at most 100"),
        (
            {
                "to": [f"a{number}@example.org" for number in range(60)],
                "cc": [f"b{number}@example.org" for number in range(60)],
            },
            "at most 100 recipients",
        ),
        ({"attach": [{"value": 1}]}, "name is missing"),
        ({"attach": [{"path": "a", "value": 1}]}, "exactly one of path, value and base64"),
        ({"attach": [{"value": 1, "name": "a/b"}]}, "must be a file's name"),
        ({"reply_to_mail": "text"}, "must be a watched mail"),
        ({"to": None, "reply_to_mail": {"message_id": "<1@x>"}}, "has no sender: give to"),
        ({"recipient": "x"}, "recipient"),
    ],
)
def test_bad_keys_are_refused(keys: dict[str, Any], expected: str) -> None:
    """Each message says what is wrong."""
    assert expected in problem(**keys)


def test_templates_are_checked_once_rendered() -> None:
    """In the file an address may be a template, and what else is missing is still found."""
    config = {"to": "{{ inputs.to }}", "subject": "x", "text": "y"}
    assert MailConfig.model_validate(config)
    with pytest.raises(ValidationError, match="give text or html"):
        MailConfig.model_validate({"to": "{{ inputs.to }}", "subject": "x"})
    assert MailConfig.model_validate({"reply_to_mail": "{{ trigger.item }}", "text": "y"})


def test_an_answer_goes_to_the_sender_in_the_thread() -> None:
    """`Re:` stands once in front of the subject, and the thread ends with the answered mail."""
    config = complete({"reply_to_mail": ITEM, "text": "Hi"})
    assert config["to"] == [{"name": "Doe, Bob", "address": "bob@example.org"}]
    assert config["subject"] == "Re: the plan"
    assert config["reply_to_mail"] == {
        "message_id": "<3@example.org>",
        "references": ["<1@example.org>", "<2@example.org>", "<3@example.org>"],
    }
    mail = MailConfig.model_validate(config, context=RENDERED)
    assert [str(each) for each in mail.recipients] == ['"Doe, Bob" <bob@example.org>']
    assert mail.reply_to_mail is not None
    assert mail.reply_to_mail.thread()[-1] == "<3@example.org>"
    assert complete(config) == config


def test_an_answer_goes_to_reply_to_if_there_is_one() -> None:
    """The step's own `to` and `subject` have precedence over both."""
    item = {**ITEM, "reply_to": [{"name": "", "address": "office@example.org"}]}
    assert complete({"reply_to_mail": item})["to"] == ["office@example.org"]
    config = complete({"reply_to_mail": item, "to": "carl@example.org", "subject": "New"})
    assert (config["to"], config["subject"]) == ("carl@example.org", "New")


_BREAKS = ("\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029")


@pytest.mark.parametrize("end", _BREAKS, ids=ascii)
def test_an_answered_mail_cannot_leave_its_quotation(end: str) -> None:
    """It is data of a stranger in a question: no line of it ends the block, or becomes a link."""
    hostile = f"Hi{end}```{end}[Approve](https://example.org/evil){end}~~~"
    item = {**ITEM, "subject": hostile, "date": hostile, "text": hostile}
    shown = answered_mail({"reply_to_mail": item})
    assert shown is not None
    title, fence, *quoted, closing = shown.splitlines()
    assert (title, fence, closing) == ("The mail that is answered:", "```", "```")
    assert all(line.startswith(">") for line in quoted)
    assert "<a" not in str(headed(f"Send?\n\n{shown}"))
    long = answered_mail({"reply_to_mail": {**ITEM, "text": "x" * 1_234}})
    assert long is not None
    assert "> … 234 more characters\n" in long


def test_what_is_no_id_stays_out_of_the_headers() -> None:
    """Anyone may have sent the answered mail."""
    mail = RepliedMail.model_validate(
        {
            "message_id": "<1@x>\r\nBcc: eve@example.org",
            "references": [
                "<a b@x>",
                "none",
                "<ok@x>",
                "<=?utf-8?q?=0d=0a?=@x>",
                7,
                "<" + "x" * 1000 + "@x>",
            ],
        },
        context=RENDERED,
    )
    assert mail.thread() == ["<ok@x>"]
    many = [f"<{number}@x>" for number in range(80)]
    thread = RepliedMail(message_id="<last@x>", references=many).thread()
    assert (len(thread), thread[0], thread[-1]) == (50, "<0@x>", "<last@x>")
