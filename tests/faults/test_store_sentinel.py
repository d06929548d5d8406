"""`redis+sentinel://`: the primary is asked for, and asked for again when it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator

import pytest

from tests.contract.session_store_tools import TIMEOUT, Place, Session, Stores, names, state_of
from tests.faults.store_fixtures import cause_of, in_step, quick_open, works
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until, wait_until_async
from toolbelay.sessions.port import Found

pytestmark = pytest.mark.faults

MASTER = "toolbelay-primary"


class SentinelServer(RedisServer):
    """A Sentinel that watches one primary and decides alone."""

    def __init__(self, primary: RedisServer) -> None:
        super().__init__(primary.kind)
        self._config = self.directory / "sentinel.conf"
        self._config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.directory}\n"
            f"sentinel monitor {MASTER} 127.0.0.1 {primary.port} 1\n"
            f"sentinel down-after-milliseconds {MASTER} 300\n"
            f"sentinel failover-timeout {MASTER} 2000\n"
        )

    def _command(self) -> list[str]:
        return [str(self._binary), str(self._config), "--sentinel"]

    def replicas(self) -> int:
        found = self.command("SENTINEL", "REPLICAS", MASTER)
        assert isinstance(found, list)
        return len(found)


@pytest.fixture
def primary(fresh_redis_server: Callable[..., RedisServer]) -> RedisServer:
    return fresh_redis_server("--repl-diskless-sync-delay", "0")


@pytest.fixture
def replica(primary: RedisServer, fresh_redis_server: Callable[..., RedisServer]) -> RedisServer:
    return fresh_redis_server("--replicaof", f"127.0.0.1 {primary.port}")


@pytest.fixture
def sentinel(primary: RedisServer, replica: RedisServer) -> Iterator[SentinelServer]:
    watcher = SentinelServer(primary)
    try:
        watcher.start()
        # Sentinel learns of replicas from the primary's INFO, which it reads every ten seconds, or at once at its start.
        wait_until(lambda: watcher.replicas() == 1, 20, "the Sentinel knows the replica")
        yield watcher
    finally:
        watcher.close()


@pytest.fixture
async def stores(primary: RedisServer, replica: RedisServer) -> AsyncIterator[Stores]:
    stores = Stores(Place("", [primary, replica]))
    yield stores
    await stores.close()


async def test_a_failover_is_followed(
    stores: Stores, sentinel: SentinelServer, primary: RedisServer, replica: RedisServer
) -> None:
    hosts = f"127.0.0.1:1,127.0.0.1:{sentinel.port}"  # the first Sentinel is gone
    session = Session(stores.make(f"redis+sentinel://{hosts}/{MASTER}/0"))
    await session.store.raise_generation("acme", 4, timeout=TIMEOUT)
    await session.begin(state_of("a/kept"))
    assert [(await session.open()).generation for _ in range(2)] == [4, 4]
    wait_until(lambda: in_step(primary, replica), 10, "the replica has every write")
    primary.kill()
    assert await cause_of(quick_open(session)) in {"connection", "timeout"}

    await wait_until_async(lambda: works(session), 30, "the replica is the primary")
    opened = await session.open()
    assert (opened.found, names(opened.state), opened.generation) == (Found.PRESENT, ["a/kept"], 4)
    assert replica.command("ROLE")[0] == b"master"  # type: ignore[index]


async def test_an_unknown_master_is_an_outage(stores: Stores, sentinel: SentinelServer) -> None:
    session = Session(stores.make(f"redis+sentinel://127.0.0.1:{sentinel.port}/another"))
    assert await cause_of(quick_open(session)) == "connection"
