"""The real servers that the tests run against, driven as plain processes.

Every server owns its port and its directory. A `Server` can be stopped, killed, suspended (SIGSTOP, the whole process
tree), resumed and restarted on the same port and data; `close()` ends it for good.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
import signal
import subprocess
import tempfile
import uuid
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Self

import psutil
import psycopg
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.binaries import (
    RunAs,
    postgres_install_for,
    reachable_temp_root,
    redis_binary,
    unprivileged,
)
from tests.support.ports import ReservedPort
from tests.support.reaper import Reaper
from tests.support.waiting import wait_until

START_SECONDS = 30.0


@functools.cache
def reaper() -> Reaper:
    """One per test process, started with its first server."""
    return Reaper()


class Server(ABC):
    """One server process on 127.0.0.1."""

    def __init__(self, name: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"toolbelay-{name}-", dir=reachable_temp_root()))
        reaper().watch_directory(self.directory)
        self.log = self.directory / "log"
        self._port = ReservedPort()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect, as a setting would name it."""

    @property
    def port(self) -> int:
        return self._port.number

    @property
    def pid(self) -> int:
        """The process id; AssertionError when the server isn't running."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start it on its own port and data; returns when it answers. Raises AssertionError with its log if it ends."""
        assert not self.running, "the server runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                start_new_session=True,  # a Ctrl-C at the terminal is for the tests
                **self._run_as(),
            )
        reaper().watch_process(self._process.pid)
        wait_until(self._answers_or_ended, START_SECONDS, f"{type(self).__name__} on port {self.port} is up")
        return self

    def stop(self) -> None:
        """Ask it to end, as an operator would, and wait for it. Does nothing when it has ended."""
        self._end(self._stop_signal())

    def kill(self) -> None:
        """SIGKILL the whole process tree, and wait until none of it is left."""
        self._end(signal.SIGKILL)

    def suspend(self) -> None:
        """Hang it: connections stay open and are accepted by the kernel, nothing is answered."""
        _send(psutil.Process(self.pid), signal.SIGSTOP)  # first of all, so that it starts no more children
        for process in self._family():
            _send(process, signal.SIGSTOP)

    def resume(self) -> None:
        for process in self._family():
            _send(process, signal.SIGCONT)

    def restart(self) -> None:
        """Stop it if it runs, then start it again on the same port and directory."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End it for good and remove its directory."""
        self.kill()
        self._port.release()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _answers_or_ended(self) -> bool:
        assert self.running, f"the server ended at its start:\n{self.log.read_text(errors='replace')[-4000:]}"
        return self._answers()

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self.running:
            kills = number == signal.SIGKILL
            if kills:
                self._process.send_signal(signal.SIGSTOP)  # it starts no more children, which would outlive it
            family = self._family()
            for process in family[1:] if kills else []:
                _send(process, number)
            for process in family if not kills else []:
                _send(process, signal.SIGCONT)  # a suspended process wouldn't see a milder signal
            self._process.send_signal(number)
            self._process.wait(START_SECONDS)
            wait_until(lambda: not any(_alive(process) for process in family), START_SECONDS, "its children ended")
        self._process.wait(START_SECONDS)
        self._process = None

    def _family(self) -> list[psutil.Process]:
        main = psutil.Process(self.pid)
        return [main, *main.children(recursive=True)]

    def _run_as(self) -> RunAs:
        return {}

    def _stop_signal(self) -> signal.Signals:
        return signal.SIGTERM

    @abstractmethod
    def _command(self) -> list[str]: ...

    @abstractmethod
    def _answers(self) -> bool: ...


def _send(process: psutil.Process, number: signal.Signals) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.send_signal(number)


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


class RedisServer(Server):
    """Valkey 9 (`kind` "valkey") or Redis 8 (`kind` "redis"), without persistence unless `args` say otherwise."""

    def __init__(self, kind: str = "valkey", *args: str) -> None:
        self._binary = redis_binary(kind)
        super().__init__(kind)
        self.kind = kind
        self._args = args

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:PORT/0`."""
        return f"redis://127.0.0.1:{self.port}/0"

    def client(self, timeout: float = 5.0) -> redis.Redis:
        """A synchronous client that neither retries nor waits longer than `timeout` seconds; close it after use."""
        return redis.Redis(
            host="127.0.0.1",
            port=self.port,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            retry=Retry(NoBackoff(), 0),
            protocol=2,
            driver_info=None,
        )

    def command(self, *words: str | int) -> object:
        """Send one command and return its reply."""
        with self.client() as client:
            return client.execute_command(*words)

    def _command(self) -> list[str]:
        own = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)]
        return [str(self._binary), *own, "--save", "", "--appendonly", "no", *self._args]

    def _answers(self) -> bool:
        with contextlib.suppress(redis.RedisError), self.client(timeout=1.0) as client:
            return bool(client.ping())
        return False


class PostgresServer(Server):
    """PostgreSQL 16 over TCP, superuser `postgres`, no password; durable enough for a SIGKILL, not for a power cut."""

    def __init__(self, *args: str, max_connections: int = 60) -> None:
        super().__init__("postgres")
        self.directory.chmod(0o755)  # for the user that the server runs as
        self._args = (*args, "-c", f"max_connections={max_connections}")
        try:
            self._install = postgres_install_for(self.directory)
            self._data = self._initialise()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """`postgresql://postgres@127.0.0.1:PORT/postgres`; see `database_url` for others."""
        return self.database_url("postgres")

    def database_url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create_database(self) -> str:
        """Make an empty database and return its name."""
        name = f"t_{uuid.uuid4().hex}"
        self.execute(f"CREATE DATABASE {name}")
        return name

    def drop_database(self, name: str) -> None:
        """Drop it, ending connections that are still open."""
        self.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")

    def execute(self, statement: str) -> None:
        """Run one statement as superuser in the database `postgres`."""
        with psycopg.connect(self.url, autocommit=True, connect_timeout=10) as connection:
            connection.execute(statement.encode())

    def _initialise(self) -> Path:
        data = self.directory / "data"
        data.mkdir(mode=0o700)
        who = self._run_as()
        if who:
            shutil.chown(data, who["user"], who["group"])
        options = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync", "--no-instructions"]
        done = subprocess.run(
            [self._install / "bin" / "initdb", "-D", data, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            cwd="/",
            **who,
        )
        assert done.returncode == 0, f"initdb failed:\n{done.stderr[-4000:]}"
        return data

    def _run_as(self) -> RunAs:
        return unprivileged()

    def _stop_signal(self) -> signal.Signals:
        return signal.SIGINT  # fast shutdown: doesn't wait for clients

    def _command(self) -> list[str]:
        where = ["-D", str(self._data), "-h", "127.0.0.1", "-p", str(self.port), "-c", "unix_socket_directories="]
        speed = ["-c", "fsync=off", "-c", "shared_buffers=32MB", "-c", "autovacuum=off"]
        return [str(self._install / "bin" / "postgres"), *where, *speed, *self._args]

    def _answers(self) -> bool:
        with contextlib.suppress(psycopg.OperationalError):
            psycopg.connect(self.url, connect_timeout=2).close()
            return True
        return False
