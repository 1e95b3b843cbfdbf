"""What is read from feeds of every kind; pure functions of the document's bytes."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.store.db.json_values import encode
from agent.triggers.watch_runner import MAX_ITEM_BYTES
from agent.triggers.watchers import feed_document
from agent.triggers.watchers.parser_child import UnreadableError, parse

OPTIONS = {"content_type": "application/xml", "url": "https://example.org/feed", "most_items": 1000}


def read(body: bytes | str, **options: Any) -> list[dict[str, Any]]:
    """Read a feed in this process."""
    data = body.encode() if isinstance(body, str) else body
    entries: list[dict[str, Any]] = feed_document.parse(data, {**OPTIONS, **options})["entries"]
    return entries


def rss(*items: str, head: str = "") -> str:
    """Return a feed with these items."""
    inner = "".join(f"<item>{item}</item>" for item in items)
    return f'{head}<rss version="2.0"><channel><title>News</title>{inner}</channel></rss>'


def keys(found: list[dict[str, Any]]) -> list[str]:
    """Return the keys of what was found."""
    return [item["key"] for item in found]


def test_an_entry_of_rss() -> None:
    """Everything that a task may want to know about it; relative links become absolute."""
    (found,) = read(
        rss(
            "<guid isPermaLink='false'>id-1</guid><title>A &amp; B</title><link>/a</link>"
            "<description>&lt;b&gt;bold&lt;/b&gt;&lt;script&gt;x()&lt;/script&gt;</description>"
            "<pubDate>Mon, 02 Jan 2023 10:00:00 +0200</pubDate><author>me@example.org (Me)</author>"
            "<category>one</category><category>two</category>"
            "<enclosure url='https://example.org/a.mp3' type='audio/mpeg' length='7'/>"
        )
    )
    assert found["key"] == "id-1"
    assert found["data"] == {
        "id": "id-1",
        "title": "A & B",
        "link": "https://example.org/a",
        "summary": "<b>bold</b><script>x()</script>",
        "content": "",
        "published": "2023-01-02T08:00:00Z",
        "author": "me@example.org (Me)",
        "tags": ["one", "two"],
        "enclosures": [{"url": "https://example.org/a.mp3", "type": "audio/mpeg", "length": "7"}],
        "feed": "News",
    }


def test_an_entry_of_atom() -> None:
    """`updated` is its date where it has no `published`."""
    (found,) = read(
        '<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>News</title>'
        "<id>urn:feed</id><updated>2023-01-03T00:00:00Z</updated>"
        "<entry><id>urn:1</id><title>One</title><link href='https://example.org/1'/>"
        "<updated>2023-01-02T10:00:00+02:00</updated><author><name>Me</name></author>"
        "<summary>Short</summary><content type='html'>&lt;p&gt;Long&lt;/p&gt;</content></entry></feed>"
    )
    assert found["key"] == "urn:1"
    data = found["data"]
    assert (data["summary"], data["content"]) == ("Short", "<p>Long</p>")
    assert data["published"] == "2023-01-02T08:00:00Z"
    assert (data["author"], data["link"]) == ("Me", "https://example.org/1")


def test_entries_of_rdf_and_of_old_rss() -> None:
    """RSS 1.0 identifies entries by `rdf:about`; RSS 0.91 has no ids at all."""
    rdf = (
        '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"'
        ' xmlns="http://purl.org/rss/1.0/"><channel rdf:about="x"><title>News</title></channel>'
        '<item rdf:about="urn:1"><title>One</title><link>https://example.org/1</link></item></rdf:RDF>'
    )
    assert keys(read(rdf)) == ["urn:1"]
    old = (
        '<!DOCTYPE rss PUBLIC "-//Netscape Communications//DTD RSS 0.91//EN"'
        ' "http://my.netscape.com/publish/formats/rss-0.91.dtd"><rss version="0.91"><channel>'
        "<title>News</title><item><title>One</title><link>https://example.org/1</link></item>"
        "</channel></rss>"
    )
    assert keys(read(old)) == ["https://example.org/1 One"]


@pytest.mark.parametrize("version", ["1", "1.1"])
def test_entries_of_json_feed(version: str) -> None:
    """Version 1.0 has one author and numbers as ids, version 1.1 has several authors."""
    authors = (
        {"author": {"name": "Me"}}
        if version == "1"
        else {"authors": [{"name": "Me"}, {"name": "I"}]}
    )
    item = {
        "id": 7,
        "url": "/7",
        "title": "Seven",
        "content_html": "<p>x</p>",
        "date_published": "2023-01-02T10:00:00+02:00",
        "tags": ["one"],
        "attachments": [{"url": "https://example.org/a", "mime_type": "a/b", "size_in_bytes": 7}],
        **authors,
    }
    feed = {"version": f"https://jsonfeed.org/version/{version}", "title": "News", "items": [item]}
    (found,) = read(
        b"\xef\xbb\xbf" + json.dumps(feed).encode(), content_type="application/feed+json"
    )
    assert found["key"] == "7"
    assert found["data"] == {
        "id": "7",
        "title": "Seven",
        "link": "https://example.org/7",
        "summary": "",
        "content": "<p>x</p>",
        "published": "2023-01-02T08:00:00Z",
        "author": "Me" if version == "1" else "Me, I",
        "tags": ["one"],
        "enclosures": [{"url": "https://example.org/a", "type": "a/b", "length": "7"}],
        "feed": "News",
    }


def test_entries_without_ids_are_known_by_link_and_title() -> None:
    """What has none of them is known by its content; a long key becomes a hash."""
    found = read(
        rss(
            "<link>https://example.org/1</link><title>One</title>",
            "<title>Only a title</title>",
            "<description>Only a text</description>",
            f"<title>{'long ' * 200}</title>",
            f"<guid>{'x' * 5000}</guid>",
            f"<guid>{'x' * 5001}</guid>",
        )
    )
    assert keys(found)[-2:] == ["Only a title", "https://example.org/1 One"]
    hashed = keys(found)[:-2]
    assert all(key.startswith("sha256:") and len(key) == 71 for key in hashed)
    assert len(set(hashed)) == 4


def test_ids_do_not_depend_on_the_address_of_the_feed() -> None:
    """A feed that moves to another server must not show all its entries as new."""
    document = rss("<guid>1</guid>", "<link>/a</link><title>A</title>")
    moved = read(document, url="https://other.example/feed")
    assert keys(moved) == keys(read(document)) == ["/a A", "1"]
    assert moved[0]["data"]["link"] == "https://other.example/a"


def test_entries_come_oldest_first() -> None:
    """By their dates; one without a date stays beside its older neighbour."""
    dated = "<guid>{}</guid><pubDate>{} Jan 2023 10:00:00 GMT</pubDate>".format
    assert keys(read(rss(dated("b", "03"), dated("c", "04"), dated("a", "02")))) == ["a", "b", "c"]
    assert keys(read(rss("<guid>2</guid>", "<guid>1</guid>"))) == ["1", "2"]
    mixed = rss(dated("d", "05"), "<guid>c</guid>", dated("b", "03"), "<guid>a</guid>")
    assert keys(read(mixed)) == ["a", "b", "c", "d"]


def test_of_entries_with_one_id_the_newest_counts() -> None:
    """A trigger starts at most one task for a key."""
    found = read(rss("<guid>1</guid><title>new</title>", "<guid>1</guid><title>old</title>"))
    assert [item["data"]["title"] for item in found] == ["new"]


@pytest.mark.parametrize("date", ["never", "Mon, 99 Jan 99999 10:00:00 GMT", ""])
def test_a_date_that_is_none_is_null(date: str) -> None:
    """An entry without a date is an entry."""
    (found,) = read(rss(f"<guid>1</guid><pubDate>{date}</pubDate>"))
    assert found["data"]["published"] is None


def test_texts_are_bounded() -> None:
    """An entry of megabytes does not become a task's input of megabytes."""
    long = "<description>" + "x" * 100_000 + "</description>"
    tags = "".join(f"<category>{'t' * 5000}{n}</category>" for n in range(200))
    (found,) = read(rss(f"<guid>1</guid><title>{'y' * 9000}</title>{long}{tags}"))
    assert len(found["data"]["summary"]) == 20_000
    assert len(found["data"]["title"]) == 2_000
    assert len(found["data"]["tags"]) == 50


def test_the_largest_entry_can_be_stored() -> None:
    """Quotes and line ends take twice their length; other control characters are replaced."""
    for character in ('"', "\n", "\x01"):
        long = "a" + character * 50_000
        entry = dict.fromkeys(("id", "url", "title", "summary", "content_html"), long)
        line = long[:3000]
        parts = {
            "authors": [{"name": line}] * 60,
            "tags": [line] * 60,
            "attachments": [{"url": line, "mime_type": line, "size_in_bytes": line}] * 60,
        }
        feed = {"version": "https://jsonfeed.org/version/1", "title": long}
        (found,) = read(json.dumps({**feed, "items": [{**entry, **parts}]}))
        assert len(encode({found["key"]: found["data"]}, "item")) < MAX_ITEM_BYTES


def test_more_entries_than_a_poll_takes_are_refused() -> None:
    """None is dropped silently."""
    document = rss(*(f"<guid>{n}</guid>" for n in range(11)))
    assert len(read(document, most_items=11)) == 11
    with pytest.raises(UnreadableError, match="11 entries; a poll takes at most 10"):
        read(document, most_items=10)


@pytest.mark.parametrize(
    "document",
    [
        rss(),
        '<feed xmlns="http://www.w3.org/2005/Atom"/>',
        '{"version": "https://jsonfeed.org/version/1.1", "items": []}',
    ],
)
def test_an_empty_feed_is_a_feed(document: str) -> None:
    """It has no entries yet."""
    assert read(document) == []


@pytest.mark.parametrize(
    "document",
    [
        "",
        "   ",
        "hello",
        "<!DOCTYPE html><html><body><p>Log in</p></body></html>",
        "<opml version='2.0'><body/></opml>",
        "<svg xmlns='http://www.w3.org/2000/svg'><title>x</title></svg>",
        "{",
        "{}",
        '{"version": 1, "items": []}',
        '{"version": "https://example.org/", "items": []}',
        '{"version": "https://jsonfeed.org/version/1", "items": {}}',
        '{"version": "https://jsonfeed.org/version/1", "items": [1]}',
        "[" * 100_000,
        '{"a":' * 100_000,
    ],
)
def test_what_is_not_a_feed_is_a_problem(document: str) -> None:
    """A login page must not look like a feed without entries."""
    assert "problem" in parse("feed_document", document.encode(), OPTIONS)


def test_one_bad_item_hides_no_other() -> None:
    """What is no entry is counted and passed over."""
    feed = {"version": "https://jsonfeed.org/version/1.1", "items": [{"id": "a"}, 1, None]}
    found = feed_document.parse(json.dumps(feed).encode(), OPTIONS)
    assert keys(found["entries"]) == ["a"]
    assert found["passed_over"] == "2 of its `items`, which are not objects"


def test_a_malformed_feed_is_repaired_but_one_without_its_end_is_refused() -> None:
    """Many feeds are not quite XML; a part of an entry must not be recorded as the entry."""
    whole = rss("<guid>1</guid><title>Fish & chips&nbsp;</title>")
    (found,) = read(whole)
    assert found["data"]["title"].startswith("Fish & chips")
    for cut in (len("</channel></rss>"), 30, 60):
        with pytest.raises(UnreadableError, match="its end is missing"):
            read(whole[:-cut])


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (rss("<guid>Zürich</guid>").encode("latin-1"), "text/xml; charset=iso-8859-1"),
        (
            rss("<guid>Zürich</guid>", head='<?xml version="1.0" encoding="iso-8859-1"?>').encode(
                "latin-1"
            ),
            "",
        ),
        (rss("<guid>Zürich</guid>", head="\ufeff").encode("utf-16-le"), "application/xml"),
        (rss("<guid>Zürich</guid>").encode("utf-8"), "text/xml; charset=us-ascii"),
        (rss("<guid>Zürich</guid>").encode("utf-8"), "text/xml; charset=no-such-charset"),
        (rss("<guid>Zürich</guid>").encode("utf-8"), "text/html"),
    ],
)
def test_encodings_are_found(body: bytes, content_type: str) -> None:
    """Declared in the header or in the document, or declared wrong."""
    assert keys(read(body, content_type=content_type)) == ["Zürich"]


def test_nul_and_lone_surrogates_are_replaced() -> None:
    """Databases store neither."""
    item = {"id": "a\0b", "title": "\ud800", "tags": ["\0"]}
    feed = {"version": "https://jsonfeed.org/version/1", "title": "\0", "items": [item]}
    (found,) = read(json.dumps(feed))
    assert found["key"] == "a\ufffdb"
    encode(found, "item")


_FRAGMENTS = st.sampled_from(
    [
        b"<rss version='2.0'>",
        b"<channel>",
        b"<item>",
        b"</item>",
        b"<guid>",
        b"<![CDATA[",
        b"]]>",
        b"<!DOCTYPE x [<!ENTITY a 'b'>",
        b"&a;",
        b"&#xD800;",
        b"&#0;",
        b"<feed xmlns='http://www.w3.org/2005/Atom'>",
        b"<entry>",
        b"<pubDate>1 Jan",
        b"<link href='http://[x'/>",
        b"</rss>",
        b"</feed>",
        b"<!--",
        b"<?xml version='1.0' encoding='utf-32'?>",
        b'{"version": "https://jsonfeed.org/version/1", "items": [{"id":',
        b"1e999}]}",
        b"\xff\xfe",
    ]
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(_FRAGMENTS | st.binary(max_size=12), max_size=25).map(b"".join), st.text(max_size=40)
)
def test_any_bytes_are_read_or_refused(body: bytes, content_type: str) -> None:
    """The parser raises nothing else, and what it returns can be stored."""
    answer = parse("feed_document", body, {**OPTIONS, "content_type": content_type})
    if "problem" in answer:
        return
    for item in answer["value"]["entries"]:
        assert 0 < len(item["key"]) <= 500
        encode(item, "item")
