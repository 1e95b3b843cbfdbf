"""The step that runs alone after a crash, and what follows it, as surfaces say it."""

from agent.core.clock import SECOND
from agent.steps.types.outcome import Json
from agent.store.db.database import Database
from agent.tasks.read_models import isolated_steps
from tests.support.engine import Hand, graph, step
from tests.support.interventions import lose

SOLO_SECONDS = 60.0


def _isolation(database: Database, later_seconds: float = 0.0) -> dict[str, Json] | None:
    now = database.clock.now() + int(later_seconds * SECOND)
    with database.connect("reader") as connection:
        return isolated_steps.isolation(connection, SOLO_SECONDS, now)


def _words(document: dict[str, Json] | None, task_id: str) -> str:
    assert document is not None
    assert document["task"] == task_id
    return isolated_steps.words(document, lambda _: "T", lambda _: "12:30")


def test_nothing_is_isolated_without_a_crash(checked: Database) -> None:
    """Steps that run side by side hold nothing back."""
    hand = Hand(checked)
    hand.start(graph(step("a"), step("b")))
    assert _isolation(checked) is None
    hand.succeed("a", "b")
    hand.close()


def test_the_isolated_step_and_its_followers_are_named(checked: Database) -> None:
    """With the latest end of its isolation; once that is over it holds nothing back any more."""
    victim = Hand(checked)
    task_id = victim.start(graph(step("a"), step("b"), name="poisonous"))
    lose(victim)
    victim.close()
    assert _isolation(checked) is None, "no worker runs: nothing would start anyway"
    survivor = Hand(checked)
    survivor.commit()
    assert survivor.names() == ["a"]
    found = _isolation(checked)
    assert _words(found, task_id) == (
        "step a of task T runs alone after a crash, until 12:30 at the latest;"
        " one more follows, and then other steps start"
    )
    assert _isolation(checked, SOLO_SECONDS - 1) == found
    assert _isolation(checked, SOLO_SECONDS + 1) is None
    survivor.succeed("a")
    survivor.succeed("b")
    assert _isolation(checked) is None
    survivor.close()


def test_a_step_that_waits_to_be_isolated_is_named(checked: Database) -> None:
    """Nothing starts while it waits for the steps that run."""
    victim, survivor = Hand(checked), Hand(checked)
    task_id = victim.start(graph(step("poison"), name="poisonous"))
    survivor.start(graph(step("beside"), name="innocent"))
    lose(victim)
    survivor.commit()
    assert _words(_isolation(checked), task_id) == (
        "step poison of task T will run alone after a crash, once the steps that run now have"
        " ended; other steps start then"
    )
    assert _isolation(checked, SOLO_SECONDS + 1) is None, "it has waited for too long: others start"
    survivor.succeed("beside")
    survivor.succeed("poison")
    victim.close()
    survivor.close()
