"""Triggers that a restore held before pauses of triggers had a kind."""

from pathlib import Path

from agent.restore import held
from agent.store.db.database import Database
from agent.store.schema import migrate
from tests.upgrade.revisions import migrate_to

_INSERT = (
    "INSERT INTO triggers (id, workflow, name, kind, spec, spec_hash, timing_hash, workflow_version,"
    " status, pause_reason, version, polls, failures, anchor_at, created_at)"
    " VALUES (:id, 'report', :id, 'schedule', '{}', '', '', 1, :status, :reason, 0, 0, 0, 0, 0)"
)


def test_the_upgrade_knows_which_pauses_are_those_of_a_restore(tmp_path: Path) -> None:
    """`agent db check --release` must find them; the pauses of an operator stay."""
    url = f"sqlite:///{tmp_path / 'agent.db'}"
    migrate_to("0010", url)
    database = Database(url)
    reason = "the database was restored from a backup: what happened later is not known"
    with database.connect("writer") as tx, tx.transaction():
        tx.execute(_INSERT, id="held", status="paused", reason=reason)
        tx.execute(_INSERT, id="resumed", status="active", reason=reason)
        tx.execute(_INSERT, id="paused", status="paused", reason="by an operator")
    migrate.upgrade(database)
    assert held(database).triggers == ["held"]
