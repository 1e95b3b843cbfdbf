"""The behaviour of a connection, the same on both databases."""

import threading

import pytest

from agent.store.db.database import Connection, Database, StoreError
from agent.store.db.dialect import Fault

PATIENCE_SECONDS = 60


@pytest.fixture
def writer(database: Database) -> Connection:
    """A writing connection with a small table beside ours."""
    connection = database.connect("writer")
    connection.execute("CREATE TABLE numbers (n bigint PRIMARY KEY, name text)")
    return connection


def _numbers(connection: Connection) -> list[int]:
    return [row[0] for row in connection.query("SELECT n FROM numbers ORDER BY n")]


def test_a_transaction_commits_at_its_end(database: Database, writer: Connection) -> None:
    """Other connections see its rows once the block has ended, and not before."""
    with database.connect("reader") as reader, writer:
        with writer.transaction():
            states = [writer.in_transaction]
            assert writer.execute("INSERT INTO numbers (n) VALUES (1), (2)") == 2
            assert _numbers(reader) == []
        assert [*states, writer.in_transaction] == [True, False]
        assert _numbers(reader) == [1, 2]


def test_a_transaction_that_raises_leaves_nothing(writer: Connection) -> None:
    """Any exception rolls it back and is raised again, and the connection can be used again."""
    with writer:
        with pytest.raises(ZeroDivisionError), writer.transaction():
            writer.execute("INSERT INTO numbers (n) VALUES (1)")
            raise ZeroDivisionError
        assert _numbers(writer) == []
        with writer.transaction():
            writer.execute("INSERT INTO numbers (n) VALUES (2)")
        assert _numbers(writer) == [2]


def test_transactions_do_not_nest(writer: Connection) -> None:
    """A second one inside the first is a defect, and the first is rolled back."""
    with writer:
        with pytest.raises(StoreError, match="already open") as caught, writer.transaction():
            writer.execute("INSERT INTO numbers (n) VALUES (1)")
            with writer.transaction():
                pass
        assert caught.value.fault is Fault.DEFECT
        assert not writer.in_transaction
        assert _numbers(writer) == []


def test_an_empty_transaction_is_harmless(writer: Connection) -> None:
    """It commits without an error."""
    with writer:
        with writer.transaction():
            pass
        with pytest.raises(KeyError), writer.transaction():
            raise KeyError
        assert _numbers(writer) == []


def test_a_violated_constraint_is_a_data_fault(writer: Connection) -> None:
    """The transaction is rolled back and the connection goes on."""
    with writer:
        writer.execute("INSERT INTO numbers (n) VALUES (1)")
        with pytest.raises(StoreError) as caught, writer.transaction():
            writer.execute("INSERT INTO numbers (n) VALUES (2)")
            writer.execute("INSERT INTO numbers (n) VALUES (1)")
        assert caught.value.fault is Fault.DATA
        assert _numbers(writer) == [1]


@pytest.mark.parametrize(
    "sql", ["SELECT * FROM nowhere", "SELEC 1", "SELECT n FROM numbers WHERE n = :missing"]
)
def test_a_wrong_statement_is_a_defect(writer: Connection, sql: str) -> None:
    """Bad SQL and missing parameters are bugs, and do not break the connection."""
    with writer:
        for _ in range(2):
            with pytest.raises(StoreError) as caught:
                writer.query(sql)
            assert caught.value.fault is Fault.DEFECT
        with pytest.raises(StoreError), writer.transaction():
            writer.execute("INSERT INTO numbers (n) VALUES (1)")
            writer.query(sql)
        assert _numbers(writer) == []


def test_a_snapshot_sees_one_state(database: Database, writer: Connection) -> None:
    """Queries of one snapshot agree with each other while other connections write."""
    with database.connect("reader") as reader, writer:
        writer.execute("INSERT INTO numbers (n) VALUES (1)")
        with reader.snapshot():
            assert _numbers(reader) == [1]
            writer.execute("INSERT INTO numbers (n) VALUES (2)")
            assert _numbers(reader) == [1]
        assert _numbers(reader) == [1, 2]


def test_a_snapshot_cannot_write(database: Database, writer: Connection) -> None:
    """Writing in a snapshot is refused, and the connection goes on."""
    with writer, database.connect("reader") as reader:
        with pytest.raises(StoreError) as caught, reader.snapshot():
            reader.execute("INSERT INTO numbers (n) VALUES (1)")
        assert caught.value.fault is Fault.READONLY
        assert _numbers(reader) == []


def test_several_statements_at_once(writer: Connection) -> None:
    """Each one's rows come back in order, and each sees what those before it wrote."""
    with writer, writer.transaction():
        found = writer.query_each(
            [
                ("INSERT INTO numbers (n) VALUES (:n) RETURNING n", {"n": 1}),
                ("SELECT n FROM numbers", {}),
                ("SELECT n FROM numbers WHERE n > :n", {"n": 1}),
                ("INSERT INTO numbers (n) VALUES (:n) RETURNING n", {"n": 2}),
                ("SELECT count(*) FROM numbers", {}),
            ]
        )
        assert found == [[(1,)], [(1,)], [], [(2,)], [(2,)]]
        assert writer.query_each([]) == []


def test_the_first_failing_statement_of_several_is_reported(writer: Connection) -> None:
    """None after it runs, and the transaction is rolled back."""
    with writer:
        with pytest.raises(StoreError) as caught, writer.transaction():
            writer.query_each(
                [
                    ("INSERT INTO numbers (n) VALUES (1) RETURNING n", {}),
                    ("INSERT INTO numbers (n) VALUES (1) RETURNING n", {}),
                    ("SELECT * FROM nowhere", {}),
                ]
            )
        assert caught.value.fault is Fault.DATA
        assert _numbers(writer) == []


def test_deferred_statements_run_in_order(writer: Connection) -> None:
    """The next statement sees them, and they are part of the transaction."""
    with writer:
        with writer.transaction():
            writer.defer("INSERT INTO numbers (n) VALUES (:n)", n=1)
            with writer.pipeline():
                writer.execute("INSERT INTO numbers (n) VALUES (:n)", n=2)
                writer.execute("UPDATE numbers SET name = :name WHERE n = 1", name="one")
            assert writer.query("SELECT n, name FROM numbers ORDER BY n") == [(1, "one"), (2, None)]
            writer.defer("INSERT INTO numbers (n) VALUES (:n)", n=3)
        assert _numbers(writer) == [1, 2, 3]
        with pytest.raises(ZeroDivisionError), writer.transaction():
            writer.defer("INSERT INTO numbers (n) VALUES (:n)", n=4)
            raise ZeroDivisionError
        assert _numbers(writer) == [1, 2, 3]
        writer.defer("INSERT INTO numbers (n) VALUES (:n)", n=4)
        assert _numbers(writer) == [1, 2, 3, 4]


def test_a_deferred_statement_that_fails_undoes_the_transaction(writer: Connection) -> None:
    """Its error is raised by the commit at the latest, as its own and not as an unknown commit."""
    with writer:
        writer.execute("INSERT INTO numbers (n) VALUES (1)")
        with pytest.raises(StoreError) as caught, writer.transaction():
            writer.execute("INSERT INTO numbers (n) VALUES (2)")
            writer.defer("INSERT INTO numbers (n) VALUES (:n)", n=1)
        assert type(caught.value) is StoreError
        assert caught.value.fault is Fault.DATA
        assert not writer.in_transaction
        assert _numbers(writer) == [1]
        with pytest.raises((StoreError, ZeroDivisionError)), writer.transaction():
            writer.defer("INSERT INTO numbers (n) VALUES (:n)", n=1)
            raise ZeroDivisionError
        assert _numbers(writer) == [1]


def test_a_statement_larger_than_the_buffers(writer: Connection) -> None:
    """It exceeds the buffers to the server in both directions at once."""
    text = "x" * 6_000_000
    with writer, writer.transaction():
        found = writer.query_each(
            [("SELECT CAST(:text AS text), :n + 0", {"text": text, "n": n}) for n in range(5)]
        )
        assert found == [[(text, n)] for n in range(5)]


def test_a_listener_is_notified_of_a_commit(database: Database, writer: Connection) -> None:
    """It wakes on a commit with a notification, not on a rollback; hints do not pile up."""
    with writer, database.connect("listener") as listener:
        assert not listener.wait_for_notify(0.0)
        with pytest.raises(ZeroDivisionError), writer.transaction():
            writer.execute("INSERT INTO numbers (n) VALUES (1)")
            writer.notify()
            raise ZeroDivisionError
        assert not listener.wait_for_notify(0.2)
        for number in (2, 3):
            with writer.transaction():
                writer.execute("INSERT INTO numbers (n) VALUES (:n)", n=number)
                writer.notify()
        assert listener.wait_for_notify(PATIENCE_SECONDS)
        while listener.wait_for_notify(0.2):
            pass


def test_a_waiting_listener_is_woken(database: Database, writer: Connection) -> None:
    """A wait that has begun ends with the commit, long before its timeout."""
    heard: list[bool] = []
    with writer, database.connect("listener") as listener:
        waiting = threading.Thread(
            target=lambda: heard.append(listener.wait_for_notify(PATIENCE_SECONDS))
        )
        waiting.start()
        with writer.transaction():
            writer.execute("INSERT INTO numbers (n) VALUES (1)")
            writer.notify()
        waiting.join(2 * PATIENCE_SECONDS)
    assert heard == [True]


def test_closing_rolls_back_an_open_transaction(database: Database, writer: Connection) -> None:
    """Closing twice is harmless."""
    writer._begin()
    writer.execute("INSERT INTO numbers (n) VALUES (1)")
    writer.close()
    writer.close()
    with database.connect("writer") as other:
        assert _numbers(other) == []
        with other.transaction():
            other.execute("INSERT INTO numbers (n) VALUES (2)")
        assert _numbers(other) == [2]


def test_a_wrong_clock_is_corrected_by_the_server(database: Database) -> None:
    """On SQLite both clocks are this machine's."""
    if database.is_sqlite:
        database.set_clock()
        return
    real = database.clock.now()
    database.clock.set_to(0)
    database.set_clock()
    assert 0 <= database.clock.now() - real < 600 * 1_000_000


def test_an_address_that_names_no_database_is_refused() -> None:
    """The message says what would be right."""
    for url in ("", "agent.db", "mysql://x/y", "sqlite://", "sqlite:///", "sqlite:agent.db"):
        with pytest.raises(StoreError, match=r"sqlite:///PATH or postgresql://"):
            Database(url)


def test_a_reader_plans_for_the_tables_as_they_are(postgres_database: Database) -> None:
    """A plan that is kept from when a table was small would scan the table after it has grown."""
    with postgres_database.connect("reader") as reader:
        for number in range(20):
            reader.query("SELECT id FROM tasks WHERE id = :id", id=str(number))
        ((generic, custom),) = reader.query(
            "SELECT sum(generic_plans), sum(custom_plans) FROM pg_prepared_statements"
            " WHERE statement LIKE 'SELECT id FROM tasks%'"
        )
    assert generic == 0
    assert custom > 10, "the statement is prepared"
