"""Groups: items in order, limited, with bounded concurrency, and what a failing item means."""

from typing import Any

import pytest

from agent.steps.types.outcome import Returned, Succeeded
from agent.workflows.graph import Fanout
from tests.support.engine import FAILURE, Engine, Hand, graph, most_at_once, step
from tests.support.step_functions import Gate, runs


def each(fanout: Fanout, function: str = "echo", **options: Any) -> Any:
    """Return a group called `each`."""
    return step("each", function, fanout=fanout, **options)


def expand(hand: Hand, items: list[Any]) -> None:
    """Settle the attempt that decides a group's items."""
    hand.settle({"each": Succeeded(items=items)})


def test_outputs_of_items_keep_their_order(engine: Engine) -> None:
    """`foreach` runs each item once with its value, index and count."""
    done = engine.run(
        graph(
            step("list", "echo", given={"value": ["x", "y", "z"]}),
            each(
                Fanout(items_of="steps.list.output"),
                after=["list"],
                given={"value": "{{ [item, parallel_index, parallel_count] }}"},
            ),
            step("all", "echo", after=["each"], given={"value": "{{ steps.each.output }}"}),
        )
    )
    assert done["output"] == {"all": [["x", 0, 3], ["y", 1, 3], ["z", 2, 3]]}
    assert engine.steps(done["id"])["each"]["output"] == done["output"]["all"]


def test_a_count_creates_that_number_of_items(engine: Engine) -> None:
    """`parallel: 4` and `parallel: EXPRESSION` number their items from 0."""
    done = engine.run(
        graph(
            step("count", "echo", given={"value": 2}),
            each(Fanout(count=4), given={"value": "{{ item }}"}),
            step(
                "more",
                "echo",
                after=["count"],
                fanout=Fanout(count_of="steps.count.output"),
                given={"value": "{{ item * 10 }}"},
            ),
        )
    )
    assert done["output"] == {"each": [0, 1, 2, 3], "more": [0, 10]}


def test_a_group_without_items_succeeds(engine: Engine) -> None:
    """An empty list gives an empty list, and dependent steps run."""
    done = engine.run(
        graph(
            each(Fanout(items=[])),
            step("after", "echo", after=["each"], given={"value": "{{ steps.each.output }}"}),
        )
    )
    assert (done["status"], done["output"]) == ("succeeded", {"after": []})


def test_a_value_that_is_no_list_or_too_long_fails_the_step(engine: Engine) -> None:
    """The error names the value and the limit; no item is created."""
    for expression, code in (
        ("(range(9000) | list) + (range(9000) | list)", "too_many_items"),
        ("'text'", "bad_items"),
    ):
        done = engine.run(graph(each(Fanout(items_of=expression))))
        assert done["status"] == "failed"
        assert done["error"]["code"] == code, done["error"]
        assert len(done["steps"]) == 1


def test_concurrency_holds_at_every_instant(engine: Engine) -> None:
    """Of thirty items never more than four run at once, in the order of the list."""
    done = engine.run(graph(each(Fanout(count=30, concurrency=4))))
    events = engine.events(done["id"])
    assert most_at_once(events, lambda name: "[" in name) == 4
    claims = [name for kind, name, _, _ in events if kind == "step.claimed" and "[" in str(name)]
    assert claims == [f"each[{number}]" for number in range(30)]


def test_the_tasks_concurrency_limit_counts_items(hand: Hand) -> None:
    """Items and plain steps share `max_parallel`; items are created as slots become free."""
    task_id = hand.start(graph(each(Fanout(count=5)), step("z"), max_parallel=3))
    assert hand.names() == ["each", "z"]
    expand(hand, list(range(5)))
    assert hand.names() == ["each[0]", "each[1]", "z"]
    assert len(hand.document(task_id)["steps"]) == 4
    hand.succeed("z", "each[1]")
    assert hand.names() == ["each[0]", "each[2]", "each[3]"]
    hand.succeed("each[0]", "each[2]", "each[3]")
    hand.succeed("each[4]")
    assert hand.status(task_id) == "succeeded"
    assert hand.steps(task_id)["each"]["output"] == [f"each[{number}]" for number in range(5)]


def test_two_groups_share_one_slot(hand: Hand) -> None:
    """With one slot for both, every item of both groups runs."""
    two = graph(each(Fanout(count=3)), step("also", fanout=Fanout(count=3)), max_parallel=1)
    task_id = hand.start(two)
    for _ in range(8):
        (name,) = hand.names()
        if "[" in name:
            hand.succeed(name)
        else:
            hand.settle({name: Succeeded(items=[1, 2, 3])})
    assert hand.status(task_id) == "succeeded"
    assert most_at_once(hand.events(task_id), lambda _: True) == 1


def test_many_items_are_created_over_several_commits(hand: Hand) -> None:
    """A wide group does not create all its rows in one transaction, but creates them all."""
    task_id = hand.start(graph(each(Fanout(count=1200))))
    expand(hand, list(range(1200)))
    ((first,),) = hand.rows("SELECT count(*) FROM steps WHERE parallel_index >= 0")
    assert 0 < first <= 500
    hand.commit()
    hand.commit()
    assert hand.rows("SELECT count(*) FROM steps WHERE parallel_index >= 0") == [(1200,)]
    assert len(hand.names()) == 50
    hand.operator.cancel(task_id)


def test_a_failing_item_fails_the_group_and_stops_it(hand: Hand) -> None:
    """With fail_fast no further item begins, running ones are stopped, and the group fails."""
    task_id = hand.start(graph(each(Fanout(count=10, concurrency=3)), step("z", after=["each"])))
    expand(hand, list(range(10)))
    result = hand.fail("each[1]").result
    assert len(result.stops) == 2
    assert hand.names() == ["each[0]", "each[2]"]
    hand.settle({"each[0]": Returned("stopped"), "each[2]": Succeeded("in time")})
    document = hand.document(task_id)
    assert document["status"] == "failed"
    assert document["error"]["step"] == "each[1]"
    statuses = hand.statuses(task_id)
    assert statuses["each"] == "failed" and statuses["z"] == "skipped"
    assert (statuses["each[0]"], statuses["each[1]"], statuses["each[2]"]) == (
        "skipped",
        "failed",
        "succeeded",
    )
    assert "each[3]" not in statuses


def test_without_fail_fast_all_items_run_before_the_group_fails(engine: Engine) -> None:
    """The group's error names the number of failed items, and the other outputs are kept."""
    gate = Gate()
    given = {"gate": gate.name, "value": "{{ item }}"}
    fanout = Fanout(count=6, concurrency=2)
    done = engine.run(
        graph(
            each(fanout, "odd_fails_while_shut", given=given),
            step("after", after=["each"]),
            step("sweep", after=["each"], run_on="failure"),
            fail_fast=False,
        )
    )
    assert done["status"] == "failed"
    assert sorted(runs[gate.name]) == [0, 1, 2, 3, 4, 5]
    steps = engine.steps(done["id"])
    assert steps["each"]["error"]["message"] == "3 of 6 items failed"
    assert steps["each[4]"]["output"] == 40
    assert (steps["after"]["status"], steps["sweep"]["status"]) == ("skipped", "succeeded")


def test_a_group_expanded_in_a_failing_task_creates_no_items(hand: Hand) -> None:
    """Items that arrive after another step failed, or in the same commit, never start."""
    failing = graph(
        each(Fanout(count=3)), step("bad"), step("sweep", after=["bad"], run_on="always")
    )
    after = hand.start(failing)
    hand.fail("bad")
    expand(hand, [0, 1, 2])
    assert hand.names() == ["sweep"]
    hand.succeed("sweep")
    beside = hand.start(failing)
    hand.settle({"each": Succeeded(items=[0, 1, 2]), "bad": FAILURE})
    assert hand.names() == ["sweep"]
    hand.succeed("sweep")
    for task_id in (after, beside):
        assert hand.status(task_id) == "failed"
        assert hand.statuses(task_id)["each"] == "skipped"


def test_a_group_whose_items_wait_is_skipped_by_a_failure(hand: Hand) -> None:
    """Items that are not running are skipped with their group; the task ends."""
    task_id = hand.start(graph(each(Fanout(count=4)), step("bad"), max_parallel=3))
    expand(hand, [0, 1, 2, 3])
    assert hand.names() == ["bad", "each[0]", "each[1]"]
    hand.fail("bad")
    hand.settle({"each[0]": Returned("stopped"), "each[1]": Returned("stopped")})
    assert hand.status(task_id) == "failed"
    assert hand.statuses(task_id)["each"] == "skipped"


@pytest.mark.parametrize("count", [1, 3])
def test_a_condition_skips_the_whole_group(engine: Engine, count: int) -> None:
    """A false `if` on a group creates no items."""
    done = engine.run(graph(each(Fanout(count=count), condition="1 > 2")))
    assert done["status"] == "succeeded"
    assert [found["status"] for found in done["steps"]] == ["skipped"]
