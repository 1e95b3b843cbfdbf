from dataclasses import replace
from email import message_from_bytes
from email.header import decode_header, make_header
from email.message import EmailMessage
from email.policy import default as modern

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.steps.mail.composition import Letter, message_id, written
from agent.steps.mail.html_text import text_of
from agent.steps.spec.mail_addresses import Mailbox
from agent.steps.types.attachment import Attachment

ANN = Mailbox(name="Ann", address="ann@example.org")
BOB = Mailbox(name="", address="bob@example.org")
LETTER = Letter(
    sender=ANN,
    to=[BOB],
    cc=[],
    recipients=[BOB],
    subject="Hello",
    text="How are you?\n",
    html=None,
    attachments=[],
    reply_to=[],
    references=[],
    headers={},
)


def parsed(letter: Letter) -> EmailMessage:
    """Write a letter, and read it as a mail program does."""
    raw = written(letter, "<key@example.org>", 0)
    head = raw.partition(b"\r\n\r\n")[0]
    assert b"\n" not in head.replace(b"\r\n", b"")
    message = message_from_bytes(raw, policy=modern)
    assert isinstance(message, EmailMessage)
    return message


def test_from_html_alone_a_text_is_made() -> None:
    """Mail programs that show no HTML show the text."""
    message = parsed(replace(LETTER, text=None, html="<p>Hi, <b>Bob</b></p>"))
    plain, html = message.get_body(("plain",)), message.get_body(("html",))
    assert plain is not None
    assert html is not None
    assert plain.get_content() == "Hi, Bob\r\n"
    assert "<b>Bob</b>" in html.get_content()


def test_long_ids_of_a_thread_stay_whole() -> None:
    """An id that is longer than a line is neither encoded nor cut: a thread depends on it."""
    ids = [f"<{'x' * 90}{number}@mail.example.org>" for number in range(30)]
    raw = written(replace(LETTER, references=ids), "<key@example.org>", 0)
    message = message_from_bytes(raw)
    assert message["In-Reply-To"] == ids[-1]
    assert message["References"].split() == ids
    assert all(len(line) < 998 for line in raw.split(b"\r\n"))


def test_many_international_names_stay_apart() -> None:
    """Each recipient is one address, whatever its name contains."""
    people = [
        Mailbox(name=f'Jörg "Jo" Öztürk, {number}', address=f"p{number}@example.org")
        for number in range(40)
    ]
    message = parsed(replace(LETTER, to=people, recipients=people))
    found = message["To"].addresses
    assert [each.addr_spec for each in found] == [each.address for each in people]
    assert [each.display_name for each in found] == [each.name for each in people]


def test_a_mail_to_hidden_recipients_names_none() -> None:
    """A mail to `bcc` alone still has a To, without an address."""
    message = parsed(replace(LETTER, to=[]))
    assert message["To"].addresses == ()
    assert "Bcc" not in message


def test_the_same_call_writes_the_same_mail() -> None:
    """Boundaries are derived from the id, so that a repeated mail is the same to the byte."""
    letter = replace(LETTER, html="<p>Hi</p>", attachments=[Attachment("a.pdf", b"%PDF")])
    assert written(letter, "<key@example.org>", 7) == written(letter, "<key@example.org>", 7)


@pytest.mark.parametrize(
    ("name", "media_type"),
    [
        ("a.pdf", "application/pdf"),
        ("a.csv", "text/csv"),
        ("a.eml", "application/octet-stream"),
        ("a.tar.gz", "application/octet-stream"),
        ("unknown", "application/octet-stream"),
    ],
)
def test_the_type_of_an_attachment_follows_its_name(name: str, media_type: str) -> None:
    """What cannot be sent as such is sent as bytes."""
    message = parsed(replace(LETTER, attachments=[Attachment(name, b"\xff\x00content")]))
    (part,) = message.iter_attachments()
    assert part.get_content_type() == media_type
    assert part.get_payload(decode=True) == b"\xff\x00content"


_text = st.text(
    st.characters(codec="utf-8", exclude_characters="\r\n\0\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"),
    max_size=200,
)


@settings(max_examples=60)
@given(_text, st.text(st.characters(codec="utf-8"), max_size=300))
def test_any_subject_and_text_arrive(subject: str, text: str) -> None:
    """Whatever a template gives is a mail that can be read, in lines that every server takes."""
    raw = written(replace(LETTER, subject=subject.strip(), text=text), "<key@example.org>", 0)
    assert raw.isascii()
    assert all(len(line) < 998 for line in raw.split(b"\r\n"))
    message = message_from_bytes(raw, policy=modern)
    assert isinstance(message, EmailMessage)
    assert str(message["Subject"]) == subject.strip()
    assert message["To"].addresses[0].addr_spec == "bob@example.org"
    assert "Bcc" not in message
    written_lines = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    read_lines = message.get_content().replace("\r\n", "\n").replace("\r", "\n").rstrip("\n")
    assert read_lines == written_lines


_HOSTILE = "=?utf-8?q?x=0d=0aBcc:_eve=40example.org=0d=0a=0d=0aAn_evil_text?="


@pytest.mark.parametrize("text", [_HOSTILE, f"Re: {_HOSTILE}", f"Jörg {_HOSTILE}", f"a{_HOSTILE}b"])
def test_encoded_words_arrive_as_they_were_approved(text: str) -> None:
    """In any text that becomes a header they are data: no program decodes them into headers or a body."""
    bob = Mailbox(name=text, address="bob@example.org")
    message = parsed(
        replace(
            LETTER,
            sender=Mailbox(name=text, address="ann@example.org"),
            to=[bob],
            cc=[bob],
            reply_to=[bob],
            subject=text,
            headers={"X-Report": text, "List-Id": text},
            attachments=[Attachment(text, b"content")],
        )
    )
    assert [message[name] for name in ("Subject", "X-Report", "List-Id")] == [text] * 3
    for name in ("From", "To", "Cc", "Reply-To"):
        # Python 3.11 reads a space between the words of a name, so that the raw header is read.
        shown = str(make_header(decode_header(dict(message.raw_items())[name])))
        assert shown.rpartition(" <")[0].strip('"') == text
    assert "Bcc" not in message
    body, attachment = message.iter_parts()
    assert body.get_content() == "How are you?\r\n"
    assert attachment.get_filename() == text
    assert attachment.get_payload(decode=True) == b"content"


def test_a_header_that_would_not_end_is_never_written() -> None:
    """What is checked is the finished line: an id that was not checked before is refused as well."""
    with pytest.raises(ValueError, match="the header In-Reply-To would not end"):
        written(replace(LETTER, references=["<1@x>\r\nBcc: eve@example.org"]), "<key@x>", 0)


def test_the_id_has_the_domain_of_the_sender() -> None:
    """Servers expect an id that is unique in the sender's domain."""
    assert message_id("abc", ANN) == "<abc@example.org>"
    assert message_id("abc", Mailbox(address="a@[IPv6:::1]")) == "<abc@IPv6...1>"


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("<p>One</p><p>Two</p>", "One\n\nTwo\n"),
        ("a<br>b", "a\nb\n"),
        ("<ul><li>x</li><li>y</li></ul>", "- x\n- y\n"),
        ('<a href="https://example.org/a">here</a>', "here (https://example.org/a)\n"),
        ('<a href="https://example.org">https://example.org</a>', "https://example.org\n"),
        ("<style>p {}</style><script>x()</script>shown", "shown\n"),
        ("<title>T</title>1 &lt; 2 &amp; <img alt='a picture'>", "1 < 2 & a picture\n"),
        ("<table><tr><td>a</td><td>b</td></tr><tr><td>c</td></tr></table>", "a b\n\nc\n"),
        ("</a></div>broken <b>", "broken\n"),
    ],
)
def test_html_as_text(html: str, text: str) -> None:
    """Paragraphs, lists and links stay readable; what a page hides is left out."""
    assert text_of(html) == text
