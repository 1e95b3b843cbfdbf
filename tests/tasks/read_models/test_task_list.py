"""The list of tasks: filters, search, totals, pages, and what each task waits for."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest

from agent.config.settings import Settings
from agent.core.clock import SECOND
from agent.core.local_zone import local_date
from agent.core.waits import ChildRequest, Signal, Timer, UnknownCall
from agent.overview import overview_document
from agent.steps.types.outcome import Failed, Question, Retry, StepError, Succeeded, Waiting
from agent.store.read import health
from agent.store.read.task_list import TaskFilter
from agent.tasks.operator.operator import Operator
from agent.tasks.read_models import listed_waits, task_list
from agent.tasks.read_models.load import load_document
from agent.tasks.read_models.task_documents import retried_words
from agent.workflows.graph import RetryPolicy
from tests.support.child_tasks import child_of, register
from tests.support.engine import Hand, graph, other, step
from tests.support.interventions import intend

FAR = 4_000_000_000_000_000


def _page(hand: Hand, limit: int = 50, before: str | None = None, **wanted: Any) -> dict[str, Any]:
    with hand.database.connect("reader") as connection, connection.snapshot():
        return task_list.page(connection, TaskFilter(**wanted), limit, before, has_total=True)


def _found(hand: Hand, **wanted: Any) -> list[str]:
    return [task["id"] for task in _page(hand, **wanted)["tasks"]]


def _failed(message: str) -> Failed:
    return Failed(StepError("broken", "own", message))


def test_filters_select_and_combine(hand: Hand) -> None:
    """Statuses and activities may be several; every filter narrows."""
    failed = hand.start(graph(step("a"), name="first"))
    hand.settle({"a": _failed("no")})
    ended = hand.start(graph(step("a"), name="first"))
    hand.succeed("a")
    waiting = hand.start(graph(step("b"), name="second"))
    hand.settle({"b": Waiting(Signal("go"))})
    running = hand.start(graph(step("c"), name="second"))
    assert _found(hand) == [running, waiting, ended, failed], "the newest first"
    assert _found(hand, statuses=("failed", "succeeded")) == [ended, failed]
    assert _found(hand, statuses=("running",)) == [running, waiting]
    assert _found(hand, activities=("waiting", "failed")) == [waiting, failed]
    assert _found(hand, activities=("waiting",), statuses=("failed",)) == []
    assert _found(hand, statuses=("running",), activities=("waiting",)) == [waiting]
    assert _found(hand, workflow="first", statuses=("failed",)) == [failed]
    assert _found(hand, trigger="none") == []
    assert _found(hand, part_of_id=ended[-6:]) == [ended]


def test_a_page_says_how_many_there_are_and_what_follows(hand: Hand) -> None:
    """The total does not depend on the page; `next` leads through all of them once."""
    ids = hand.submit(*[graph(step("a")) for _ in range(5)], slots=0)
    first = _page(hand, 2)
    assert [task["id"] for task in first["tasks"]] == sorted(ids, reverse=True)[:2]
    assert first["total"] == 5
    second = _page(hand, 2, first["next"])
    last = _page(hand, 2, second["next"])
    seen = [task["id"] for page in (first, second, last) for task in page["tasks"]]
    assert seen == sorted(ids, reverse=True)
    assert last["next"] is None
    assert first["searched"] is None


def test_a_large_total_is_counted_only_so_far(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counting a million rows for a list of twenty would be slower than the list."""
    hand.submit(*[graph(step("a")) for _ in range(4)], slots=0)
    monkeypatch.setattr(task_list, "MAX_COUNTED", 3)
    assert _page(hand, 1)["total"] == 3
    assert _page(hand, 1, statuses=("running", "failed"))["total"] == 3


def test_since_selects_by_the_time_of_creation(hand: Hand) -> None:
    """Ids are in the order of time, so that the primary key finds the first one."""
    (old,) = hand.submit(graph(step("a")), slots=0)
    created = hand.rows("SELECT created_at FROM tasks WHERE id = :id", id=old)[0][0]
    assert _found(hand, since=created - SECOND) == [old]
    assert _found(hand, since=created + 3600 * SECOND) == []


def test_a_search_finds_name_input_output_and_error(hand: Hand) -> None:
    """In any case of letters; characters that patterns or JSON treat in their own way are plain."""
    taken = hand.start(graph(step("a")), input={"vendor": 'ACME "50%_off" \\ Ltd'})
    hand.settle({"a": Succeeded({"paid": "two hundred"})}, taken)
    broken = hand.start(graph(step("a")))
    hand.settle({"a": _failed("The bank said Möglich")}, broken)
    assert _found(hand, search="acme") == [taken]
    assert _found(hand, search='"50%_OFF" \\') == [taken]
    assert _found(hand, search="50%off") == [], "an underscore stands for itself"
    assert _found(hand, search="Two Hundred") == [taken]
    assert _found(hand, search="the BANK") == [broken]
    assert _found(hand, search="möglich") == _found(hand, search="MÖGLICH") == [broken]
    assert _found(hand, search="bank", statuses=("succeeded",)) == []
    assert _found(hand, search="nowhere") == []
    named = hand.start(graph(step("a"), name="pay-invoice"))
    assert _found(hand, search="Invoice") == _found(hand, search="pay-") == [named]


def test_a_search_finds_what_lists_print(hand: Hand) -> None:
    """The input as it stands there, why a task waits or is paused, the step that failed; not any step."""
    paying = hand.start(
        graph(step("book"), step("tell")), input={"amount": 249.5, "number": 4711, "to": "Müller"}
    )
    assert _found(hand, search="amount=249.5, number=4711") == [paying]
    assert _found(hand, search="amount=250") == _found(hand, search="tell") == []
    hand.settle({"book": Waiting(Signal("harvest"))}, paying)
    assert _found(hand, search="harvest") == _found(hand, search="the signal 'harvest'") == [paying]
    hand.operator.pause(paying, "until the rain stops")
    assert _found(hand, search="the rain") == [paying]
    broken = hand.start(graph(step("bake")))
    hand.settle({"bake": _failed("no oven")}, broken)
    assert _found(hand, search="bake") == _found(hand, search="bake: no oven") == [broken]


def test_a_search_ignores_accents(hand: Hand) -> None:
    """In the input, in an output and in the search; of either form of a letter."""
    city = hand.start(graph(step("a")), input={"city": 'Ærøskøbing "Süd"'})
    hand.settle({"a": Succeeded({"note": "déjà vu in Straße"})}, city)
    plain = hand.start(graph(step("a")), input={"city": "Sudhafen"})
    assert _found(hand, search='"sud"') == _found(hand, search='"SÜD"') == [city]
    assert _found(hand, search="Deja VU") == _found(hand, search="strasse") == [city]
    assert _found(hand, search="su\u0308d") == [plain, city]


def test_a_search_goes_on_where_it_stopped(hand: Hand, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops when its time is up or its page is full, and says how far it got."""
    monkeypatch.setattr(task_list, "_SEARCHED_AT_ONCE", 2)
    wanted = [
        hand.start(graph(step("a")), input={"n": "odd" if number % 4 == 1 else "even"})
        for number in range(8)
    ]
    odd = [wanted[5], wanted[1]]
    full = _page(hand, 1, search="odd")
    assert [task["id"] for task in full["tasks"]] == odd[:1]
    assert (full["next"], full["total"]) == (odd[0], None)
    assert full["searched"]["tasks"] == 3
    monkeypatch.setattr(task_list, "SEARCH_SECONDS", -1.0)
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = _page(hand, 5, cursor, search="odd")
        assert page["searched"]["tasks"] <= 2, "one small batch when the time is up"
        seen += [task["id"] for task in page["tasks"]]
        cursor, pages = page["next"], pages + 1
    assert seen == odd
    assert pages == 5, "four batches, and the one that found the end"


def _waiting_for(hand: Hand, task_id: str) -> list[dict[str, Any]]:
    (listed,) = [task for task in _page(hand)["tasks"] if task["id"] == task_id]
    assert listed["activity"] == "waiting"
    found: list[dict[str, Any]] = listed["waiting_for"]
    return found


@pytest.mark.parametrize(
    ("wait", "expected", "words"),
    [
        (lambda _: Waiting(Signal("go")), {"what": "signal", "name": "go"}, "the signal 'go'"),
        (
            lambda _: Waiting(Timer(FAR), FAR),
            {"what": "time", "until": "2096-10-02T07:06:40.000Z"},
            "waits until 2096",
        ),
        (
            lambda _: Waiting(Timer(FAR, "ask"), FAR),
            {"what": "effect", "until": "2096-10-02T07:06:40.000Z"},
            "waits for its effect until 2096",
        ),
        (
            lambda _: Waiting(Question("approval", "Pay 250?", {})),
            {"what": "person", "message": "Pay 250?"},
            "asks: Pay 250?",
        ),
        (
            lambda hand: Waiting(UnknownCall(intend(hand, hand.claimed("a")))),
            {"what": "unknown"},
            "effect is unknown",
        ),
        (
            lambda _: Retry(StepError("gone", "remote", "later"), delay_seconds=3600),
            {"what": "retry"},
            "tries again at",
        ),
    ],
    ids=["signal", "time", "effect", "person", "unknown", "retry"],
)
def test_a_waiting_task_says_what_for(
    hand: Hand, wait: Callable[[Hand], Any], expected: dict[str, Any], words: str
) -> None:
    """A person sees from the list what has to happen."""
    task_id = hand.start(graph(step("a", retry=RetryPolicy(max_attempts=2))))
    hand.settle({"a": wait(hand)})
    (entry,) = _waiting_for(hand, task_id)
    assert entry["count"] == 1
    assert {key: entry[key] for key in expected} == expected
    assert words in listed_waits.words([entry])


def test_a_parent_says_what_its_child_waits_for(hand: Hand) -> None:
    """Through every level; the child that a person has to look at is named."""
    register(hand, graph(step("c"), name="child"))
    register(hand, graph(other("m", "workflow", config={"name": "child"}), name="middle"))
    task_id = hand.start(graph(other("p", "workflow", config={"name": "middle"})))
    hand.settle({"p": Waiting(ChildRequest("middle", {}))})
    hand.commit()
    hand.settle({"m": Waiting(ChildRequest("child", {}))})
    hand.commit()
    child = child_of(hand, child_of(hand, task_id))
    (entry,) = _waiting_for(hand, task_id)
    assert (entry["what"], entry["waiting_for"]) == ("child", []), "its child runs"
    hand.settle({"c": Waiting(Question("approval", "Really?", {}))})
    (entry,) = _waiting_for(hand, task_id)
    assert (entry["what"], entry["task"]) == ("child", child)
    assert listed_waits.words([entry]) == f"its child task {child[-8:]} asks: Really?"
    Operator(hand.database, hand.database.clock).pause(child, None)
    hand.commit()
    (entry,) = _waiting_for(hand, task_id)
    assert [each["what"] for each in entry["waiting_for"]] == ["person", "paused"]


def test_what_a_person_has_to_do_comes_first(hand: Hand) -> None:
    """Steps that wait for the same are counted together."""
    task_id = hand.start(graph(step("a"), step("b"), step("c"), step("d")))
    hand.settle(
        {
            "a": Waiting(Timer(FAR), FAR),
            "b": Waiting(Signal("one")),
            "c": Waiting(Signal("two")),
            "d": Waiting(Question("approval", "May it?", {})),
        }
    )
    entries = _waiting_for(hand, task_id)
    assert [(each["what"], each["count"]) for each in entries] == [
        ("person", 1),
        ("signal", 2),
        ("time", 1),
    ]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        ('{"amount":250,"vendor":"Example  Ltd"}', "amount=250, vendor=Example Ltd"),
        ('{"list":[1,{"a":null}]}', 'list=[1, {"a": null}]'),
        ("{}", ""),
        ('{"text":"' + "x" * 300, '{"text":"' + "x" * 190 + "…"),
    ],
)
def test_an_input_is_shown_as_one_short_line(stored: str, shown: str) -> None:
    """Also where only the beginning of a large one was read."""
    assert task_list.input_preview(stored) == shown


NOW = 1_800_000_000 * SECOND


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("2h", NOW - 7200 * SECOND),
        ("1d12h", NOW - 36 * 3600 * SECOND),
        ("2 days", NOW - 48 * 3600 * SECOND),
        ("90 minutes ago", NOW - 5400 * SECOND),
        ("2027-01-15T08:00:00Z", 1_800_000_000 * SECOND),
        ("2027-01-15T10:00+02:00", 1_800_000_000 * SECOND),
    ],
)
def test_since_is_a_duration_or_a_time(text: str, instant: int) -> None:
    """A duration counts back from now."""
    assert task_list.parse_since(text, NOW) == instant


def test_since_yesterday_begins_at_midnight() -> None:
    """The day is one of this machine's zone."""
    today = date.fromisoformat(local_date(NOW))
    midnight = task_list.parse_since(today.isoformat(), NOW)
    assert task_list.parse_since("today", NOW) == midnight
    day_before = (today - timedelta(days=1)).isoformat()
    assert task_list.parse_since("Yesterday", NOW) == task_list.parse_since(day_before, NOW)


@pytest.mark.parametrize(
    "text", ["", "yesterday evening", "2h30", "5 parsecs", "2027-13-01", "-3h"]
)
def test_since_refuses_what_it_cannot_read(text: str) -> None:
    """The message names what can be written."""
    with pytest.raises(ValueError, match="2h or 7d"):
        task_list.parse_since(text, NOW)


def test_a_failure_whose_retry_succeeded_is_no_failure_any_more(hand: Hand) -> None:
    """It says as what it was retried, the last of the line; counts of failures leave it out."""
    definition = graph(step("a"))

    def counted() -> tuple[Any, ...]:
        with hand.database.connect("reader") as connection, connection.snapshot():
            glance = overview_document(connection, Settings(), hand.clock.now())["failed"]
            load = load_document(connection, Settings(), hand.clock.now())
            open_failures = health.open_counts(connection).get("failed", 0)
            assert load["tasks"].get("failed", 0) - load["retried"] == open_failures
            return glance["count"], open_failures, [task["id"] for task in glance["first"]]

    first, other_task = hand.start(definition), hand.start(definition)
    hand.fail("a", task_id=first)
    hand.fail("a", task_id=other_task)
    second = hand.operator.retry(first).task_id
    hand.commit()
    hand.fail("a", task_id=second)
    third = hand.operator.retry(second).task_id
    hand.commit()
    assert counted() == (3, 3, [second, other_task, first])
    listed = {task["id"]: task["retried_as"] for task in _page(hand)["tasks"]}
    running = {"id": third, "status": "running"}
    assert listed == {first: running, second: running, third: None, other_task: None}
    hand.succeed("a", task_id=third)
    assert counted() == (1, 1, [other_task])
    assert retried_words(hand.document(first)) == f"retried as {third[-8:]} (succeeded)"
    assert retried_words(hand.document(third)) == ""
