"""The SQL that differs between the databases, on both of them."""

import json

import pytest

from agent.store.db.database import Database, StoreError
from agent.store.db.dialect import Fault, numbered, postgresql_fault, sqlite_fault

_BIG = 2**63 - 1


def test_a_set_of_rows_is_read_as_it_was_bound(database: Database) -> None:
    """Nulls, Unicode, quotes, large integers and names that are SQL words come through unchanged."""
    rows = [
        ["a", 1, None, 0.5],
        ["é\U0001f600\"'\\\n", -_BIG - 1, 'x "quoted" {"json": [1, null]}', -1.25e300],
        ["", _BIG, "", None],
        ["null", None, "%s :name %(x)s $1 ::text", 3],
        ["123", 0, "true", 0],
    ]
    with database.connect("reader") as connection:
        source = database.sql.rows(id="text", index="int", order="text", f="float")
        found = connection.query(
            f'SELECT r.id, r."index", r."order", r.f FROM {source}', rows=json.dumps(rows)
        )
    assert [list(row) for row in found] == rows
    assert all(isinstance(row[0], str) for row in found)
    assert all(row[1] is None or isinstance(row[1], int) for row in found)


def test_an_empty_set_has_no_rows(database: Database) -> None:
    """Statements over a set need no special case for an empty one."""
    with database.connect("reader") as connection:
        assert connection.query(f"SELECT * FROM {database.sql.rows(id='text')}", rows="[]") == []
        assert connection.query(f"SELECT 1 WHERE 'a' IN {database.sql.ids()}", ids="[]") == []


def test_a_second_set_has_its_own_name(database: Database) -> None:
    """Two sets can be bound in one statement."""
    ids = ["b", "é", "ü'\""]
    with database.connect("reader") as connection:
        found = connection.query(
            f"SELECT r.id FROM {database.sql.rows(rows_from='chosen', id='text')}"
            f" WHERE r.id IN {database.sql.ids('among')} ORDER BY r.id",
            chosen=json.dumps([["a"], ["ü'\""], ["b"]]),
            among=json.dumps(ids),
        )
    assert [row[0] for row in found] == ["b", "ü'\""]


def test_the_databases_clock_is_read_in_microseconds(database: Database) -> None:
    """It is the time of day, near this machine's, and moves on inside a transaction."""
    with database.connect("writer") as connection, connection.transaction():
        ((first,),) = connection.query(f"SELECT {database.sql.now_us}")
        second = first
        while second == first:
            ((second,),) = connection.query(f"SELECT {database.sql.now_us}")
    assert second > first
    assert abs(first - database.clock.now()) < 600 * 1_000_000


def test_least_and_greatest(database: Database) -> None:
    """Each is one function name in the dialect."""
    sql = database.sql
    with database.connect("reader") as connection:
        assert connection.query(f"SELECT {sql.least}(3, 1, 2), {sql.greatest}(3, 1, 2)") == [(1, 3)]


def test_parameters_are_numbered_for_postgresql() -> None:
    """Equal names share a number; casts, quoted text and quoted names are left alone."""
    assert numbered("SELECT :a, :b::text, ':c', \":d\", :a, x::bigint, 50 % 3") == (
        "SELECT $1, $2::text, ':c', \":d\", $1, x::bigint, 50 % 3",
        ("a", "b"),
    )
    assert numbered("SELECT 'it''s :no', :yes_1") == ("SELECT 'it''s :no', $1", ("yes_1",))


@pytest.mark.parametrize("text", ["100%", "it's", ":name", "%(x)s", "a;b--c"])
def test_text_is_always_bound(database: Database, text: str) -> None:
    """Whatever a value spells, it is never SQL."""
    with database.connect("reader") as connection:
        found = connection.query("SELECT CAST(:value AS text), '100% :x'", value=text)
    assert found == [(text, "100% :x")]


def test_values_of_every_kind_are_bound(database: Database) -> None:
    """Integers of any size, floats, bytes, nulls and booleans mean the same on both."""
    with database.connect("writer") as connection:
        connection.execute("CREATE TABLE kinds (n bigint, f double precision, b bytea, t bigint)")
        for n in (0, 2**31, -(2**63), 2**63 - 1, None):
            connection.execute("DELETE FROM kinds")
            connection.execute(
                "INSERT INTO kinds VALUES (:n, :f, :b, :t)", n=n, f=0.1, b=b"\0\xff'", t=True
            )
            ((got_n, got_f, got_b, got_t),) = connection.query("SELECT n, f, b, t FROM kinds")
            assert (got_n, got_f, bytes(got_b), got_t) == (n, 0.1, b"\0\xff'", 1)
        ((added,),) = connection.query("SELECT :now + 1000", now=2**40)
        assert added == 2**40 + 1000


def test_sums_are_plain_numbers(database: Database) -> None:
    """PostgreSQL's sum of integers is a decimal; here it is an integer as on SQLite."""
    with database.connect("reader") as connection:
        source = database.sql.rows(n="int")
        ((total,),) = connection.query(f"SELECT sum(r.n) FROM {source}", rows="[[-5], [2]]")
    assert total == -3
    assert type(total) is int


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "\ud800"])
def test_a_value_that_cannot_be_stored_is_a_data_fault(
    database: Database, value: int | str
) -> None:
    """A number beyond 64 bits or a lone surrogate is `Fault.DATA`."""
    with database.connect("writer") as connection:
        connection.execute("CREATE TABLE numbers (n bigint, t text)")
        column = "n" if isinstance(value, int) else "t"
        with pytest.raises(StoreError) as caught, connection.transaction():
            connection.execute(f"INSERT INTO numbers ({column}) VALUES (:value)", value=value)
        assert caught.value.fault is Fault.DATA
        assert connection.query("SELECT count(*) FROM numbers") == [(0,)]


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (5, "busy"), (261, "busy"), (517, "busy"), (6, "busy"), (13, "full"), (8, "readonly"),
        (1032, "readonly"), (14, "lost"), (11, "corrupt"), (26, "corrupt"), (10, "corrupt"),
        (1034, "corrupt"), (19, "data"), (2067, "data"), (1, "defect"), (None, "defect"),
    ],
)  # fmt: skip
def test_faults_of_sqlite(code: int | None, fault: str) -> None:
    """A result code, extended or not, determines the fault."""
    assert sqlite_fault(code) == fault


@pytest.mark.parametrize(
    ("state", "fault"),
    [
        ("22003", "data"), ("23505", "data"), ("22P05", "data"), ("40P01", "busy"),
        ("40001", "busy"), ("55P03", "busy"), ("57014", "busy"), ("53100", "full"),
        ("53200", "full"), ("53300", "lost"), ("25006", "readonly"), ("42501", "readonly"),
        ("57P01", "lost"), ("57P03", "lost"), ("08006", "lost"), ("3D000", "lost"),
        ("28P01", "lost"), ("25P03", "lost"), ("XX001", "corrupt"), ("58030", "corrupt"),
        ("42P01", "defect"), ("42601", "defect"), ("XX000", "defect"), (None, "lost"),
    ],
)  # fmt: skip
def test_faults_of_postgresql(state: str | None, fault: str) -> None:
    """A SQLSTATE determines the fault; without one the connection is lost."""
    assert postgresql_fault(state) == fault
