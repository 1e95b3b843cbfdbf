"""A record that the database always refuses leaves no attempt waiting."""

from collections.abc import Iterator

import pytest

from agent.store.db.database import Database
from tests.support.engine import Start, graph, step
from tests.support.step_functions import runs


@pytest.fixture
def refusing(database: Database) -> Iterator[None]:
    """Let the database refuse every intent, as a foreign schema might."""
    with database.connect("writer") as connection:
        if database.is_sqlite:
            connection.execute(
                "CREATE TRIGGER refusing BEFORE INSERT ON tool_calls"
                " BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
            )
            undo = "DROP TRIGGER refusing"
        else:
            connection.execute("ALTER TABLE tool_calls ADD CONSTRAINT refusing CHECK (id = 'x')")
            undo = "ALTER TABLE tool_calls DROP CONSTRAINT refusing"
    yield
    with database.connect("writer") as connection:
        connection.execute(undo)


@pytest.mark.usefixtures("refusing")
def test_an_intent_that_cannot_be_recorded_fails_its_step(start: Start) -> None:
    """The effect does not begin, each attempt gets the reason, and the other step succeeds."""
    engine = start()
    done = engine.run(
        graph(step("pay", "acting", given={"token": "refused"}), step("other", "echo")), "failed"
    )
    steps = {found["name"]: found for found in done["steps"]}
    assert steps["pay"]["error"]["code"] == "not_recorded"
    assert "refus" in steps["pay"]["error"]["message"]
    assert steps["pay"]["attempt"] == 3
    assert runs["refused"] == []
    assert engine.rows("SELECT count(*) FROM tool_calls") == [(0,)]
