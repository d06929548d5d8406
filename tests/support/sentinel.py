"""A primary, a replica and the Sentinel that watches them, real ones."""

from __future__ import annotations

from contextlib import ExitStack

from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

MASTER_NAME = "toolbelay"
FAILOVER_SECONDS = 60.0


class SentinelServer(RedisServer):
    """One Sentinel that takes `primary` for dead after `down_after_ms` without an answer."""

    def __init__(self, primary: RedisServer, *, down_after_ms: int = 500) -> None:
        super().__init__(primary.kind)
        self._config = self.directory / "sentinel.conf"  # Sentinel keeps what it learns in it
        self._config.write_text(
            f"port {self.port}\nbind 127.0.0.1\ndir {self.directory}\n"
            f"sentinel monitor {MASTER_NAME} 127.0.0.1 {primary.port} 1\n"
            f"sentinel down-after-milliseconds {MASTER_NAME} {down_after_ms}\n"
            f"sentinel failover-timeout {MASTER_NAME} 5000\n"
        )

    @property
    def url(self) -> str:
        """`redis+sentinel://127.0.0.1:PORT/toolbelay`."""
        return f"redis+sentinel://127.0.0.1:{self.port}/{MASTER_NAME}"

    def primary_port(self) -> int:
        """The port of the server that Sentinel now takes for the primary."""
        reply = self.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)
        assert isinstance(reply, list | tuple)
        return int(reply[1])

    def _command(self) -> list[str]:
        return [str(self._binary), str(self._config), "--sentinel"]


class RedisSentinel:
    """`sentinel` watches `primary`, which `replica` copies; closing ends all three."""

    def __init__(self, kind: str = "valkey") -> None:
        with ExitStack() as stack:
            quick = ("--repl-diskless-sync-delay", "0")
            self.primary = RedisServer(kind, *quick)
            stack.callback(self.primary.close)
            self.replica = RedisServer(kind, *quick, "--replicaof", f"127.0.0.1 {self.primary.port}")
            stack.callback(self.replica.close)
            self.primary.start()
            self.replica.start()
            wait_until(self._in_step, FAILOVER_SECONDS, "the replica is in step")
            self.sentinel = SentinelServer(self.primary)
            stack.callback(self.sentinel.close)
            self.sentinel.start()
            wait_until(self._knows_the_replica, FAILOVER_SECONDS, "Sentinel has found the replica")
            self._resources = stack.pop_all()

    @property
    def url(self) -> str:
        return self.sentinel.url

    def wait_for_failover(self) -> None:
        """Wait until the replica is the primary, after `primary` was killed or suspended."""
        wait_until(
            lambda: self.sentinel.primary_port() == self.replica.port and b"role:master" in _replication(self.replica),
            FAILOVER_SECONDS,
            "the replica was promoted",
        )

    def close(self) -> None:
        self._resources.close()

    def _in_step(self) -> bool:
        return b"master_link_status:up" in _replication(self.replica)

    def _knows_the_replica(self) -> bool:
        replicas = self.sentinel.command("SENTINEL", "REPLICAS", MASTER_NAME)
        return isinstance(replicas, list) and len(replicas) == 1


def _replication(server: RedisServer) -> bytes:
    with server.client() as client:
        client.response_callbacks.clear()  # the raw text is the same for every version
        reply = client.execute_command("INFO", "replication")
    assert isinstance(reply, bytes)
    return reply
