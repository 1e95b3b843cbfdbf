"""The reads for calls of external workers, made when their transaction begins.

The reads travel with the others of `begin`, so that they cost no round trip of their own. Rows of leases
are read after the locks of their tasks. Work that may be claimed is read without locks: `work` locks its
tasks and compares it again.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from agent.store.db.database import Connection
from agent.store.db.dialect import Sql
from agent.store.engine import work_rows
from agent.store.engine.reads import Rows, Statement
from agent.tasks.rules.external_work import work_claims
from agent.tasks.rules.external_work.work_parts import LeaseCall, WorkClaim, WorkPart


@dataclass(frozen=True, slots=True)
class WorkReads:
    """The rows that were read."""

    leased: Rows
    """The work of the leases that calls name."""
    claimed: Rows
    """Work that the client tokens of claims have already got."""
    queued: Rows
    """Work that claims may get."""


class WorkStatements(NamedTuple):
    """The statements that read them."""

    leased: list[Statement]
    claimed: list[Statement]
    queued: list[Statement]

    @property
    def all(self) -> list[Statement]:
        """Every statement, in the order of their answers."""
        return [*self.leased, *self.claimed, *self.queued]

    def collect(self, answers: Sequence[Rows]) -> WorkReads:
        """Return the rows by their purpose."""
        rest = iter(answers)
        leased, claimed, queued = (
            list(chain.from_iterable(next(rest) for _ in statements)) for statements in self
        )
        return WorkReads(leased, claimed, queued)


def statements(sql: Sql, parts: Iterable[WorkPart]) -> WorkStatements:
    """Return the reads for the calls of a batch; empty if it has none."""
    calls, claims = split(parts)
    tokens = {claim.client_token for claim in claims if claim.client_token is not None}
    queues = {queue for claim in claims for queue in claim.queues}
    return WorkStatements(
        leased=[work_rows.find_statement(sql, {call.address.work_id for call in calls})]
        if calls
        else [],
        claimed=[work_rows.token_statement(sql, tokens)] if tokens else [],
        queued=work_rows.candidate_statements(sql, queues, work_claims.most_candidates(claims)),
    )


def read(connection: Connection, parts: Iterable[WorkPart]) -> WorkReads:
    """Read them by themselves, in one round trip."""
    wanted = statements(connection.sql, parts)
    return wanted.collect(connection.query_each(wanted.all))


def split(parts: Iterable[WorkPart]) -> tuple[list[LeaseCall], list[WorkClaim]]:
    """Return the calls on leases and the claims of a batch."""
    calls: list[LeaseCall] = []
    claims: list[WorkClaim] = []
    for part in parts:
        if isinstance(part, LeaseCall):
            calls.append(part)
        else:
            claims.append(part)
    return calls, claims
