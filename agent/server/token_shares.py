"""Shares of a bounded resource: the requests of one token leave a quarter of it to others."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from agent.server.access.grants import TokenGrant
from agent.server.problems import retry_later


class TokenShares:
    """Counts what is taken of a resource, in all and by token."""

    def __init__(self, most: int, detail: str) -> None:
        """`detail` says what there is too much of."""
        self._most = most
        self._most_of_one = most - most // 4
        self._detail = detail
        self._taken: Counter[str] = Counter()

    @property
    def has_any(self) -> bool:
        """Whether anything is taken."""
        return bool(self._taken)

    def is_full(self, grant: TokenGrant) -> bool:
        """Whether there is nothing left for a token."""
        return self._taken[grant.hash] >= self._most_of_one or self._taken.total() >= self._most

    def check(self, grant: TokenGrant) -> None:
        """Refuse a request of a token for which there is nothing left."""
        if self.is_full(grant):
            raise retry_later(503, "overloaded", self._detail, 5)

    @contextmanager
    def taken(self, grant: TokenGrant) -> Iterator[None]:
        """Take a share for the duration of a block; call `check` first."""
        self._taken[grant.hash] += 1
        try:
            yield
        finally:
            self._taken[grant.hash] -= 1
            if not self._taken[grant.hash]:
                del self._taken[grant.hash]
