"""A Redis Cluster of real nodes on 127.0.0.1, built without a command line tool."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import redis

from tests.support.ports import ReservedPort
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

SLOTS = 16384
FORM_SECONDS = 60.0


class RedisCluster:
    """`primaries` nodes that share the slots, each with `replicas` replicas."""

    def __init__(
        self, kind: str = "valkey", *, primaries: int = 3, replicas: int = 0, node_timeout_ms: int = 2000
    ) -> None:
        self.kind = kind
        self._buses: list[ReservedPort] = []
        self.nodes: list[RedisServer] = []
        self._replicas: dict[int, list[RedisServer]] = {}
        self._node_timeout_ms = node_timeout_ms
        try:
            self.primaries = [self._add_node() for _ in range(primaries)]
            self._share_slots()
            for primary in self.primaries:
                self._replicas[primary.port] = [self._add_node() for _ in range(replicas)]
            self._meet()
            wait_until(self._formed, FORM_SECONDS, "the cluster has formed")
            self._attach_replicas()
        except BaseException:
            self.close()
            raise

    @property
    def url(self) -> str:
        """`redis+cluster://127.0.0.1:PORT` of the first node."""
        return f"redis+cluster://127.0.0.1:{self.nodes[0].port}"

    def replicas_of(self, primary: RedisServer) -> list[RedisServer]:
        """The replicas given to this node at the start; roles may have changed since."""
        return self._replicas[primary.port]

    def node_of(self, key: str) -> RedisServer:
        """The node that holds the key's slot now, as a running node sees it."""
        witness = next(node for node in self.nodes if node.running)
        slot = witness.command("CLUSTER", "KEYSLOT", key)
        assert isinstance(slot, int)
        for first, last, port in self._slot_ranges(witness):
            if first <= slot <= last:
                return self._node_at(port)
        raise AssertionError(f"no node holds slot {slot}")

    def fail_over(self, primary: RedisServer) -> RedisServer:
        """Promote a replica of `primary` in an orderly way; returns it once it is the primary."""
        replica = self.replicas_of(primary)[0]
        replica.command("CLUSTER", "FAILOVER")
        wait_until(lambda: _role(replica) == "master", FORM_SECONDS, "the replica was promoted")
        return replica

    def flush(self) -> None:
        """Empty every primary."""
        for node in self.nodes:
            if _role(node) == "master":
                node.command("FLUSHALL")

    def close(self) -> None:
        with ExitStack() as stack:
            for bus in self._buses:
                stack.callback(bus.release)
            for node in self.nodes:
                stack.callback(node.close)

    def _add_node(self) -> RedisServer:
        bus = ReservedPort()
        self._buses.append(bus)
        timeout = str(self._node_timeout_ms)
        identity = ("--cluster-enabled", "yes", "--cluster-node-timeout", timeout, "--cluster-port", str(bus.number))
        node = RedisServer(self.kind, *identity, "--repl-diskless-sync-delay", "0")
        self.nodes.append(node)
        return node.start()

    def _share_slots(self) -> None:
        count = len(self.primaries)
        for index, node in enumerate(self.primaries):
            first, end = SLOTS * index // count, SLOTS * (index + 1) // count
            node.command("CLUSTER", "ADDSLOTSRANGE", first, end - 1)
            node.command("CLUSTER", "SET-CONFIG-EPOCH", index + 1)  # else equal epochs are settled first, which is slow

    def _meet(self) -> None:
        for node, bus in zip(self.nodes[1:], self._buses[1:], strict=True):
            self.nodes[0].command("CLUSTER", "MEET", "127.0.0.1", node.port, bus.number)

    def _formed(self) -> bool:
        return all(self._sees_all(node) for node in self.nodes)

    def _sees_all(self, node: RedisServer) -> bool:
        info = _info(node, "CLUSTER", "INFO")
        return info["cluster_state"] == "ok" and info["cluster_known_nodes"] == str(len(self.nodes))

    def _attach_replicas(self) -> None:
        for primary in self.primaries:
            identity = _text(primary.command("CLUSTER", "MYID"))
            for replica in self.replicas_of(primary):
                replica.command("CLUSTER", "REPLICATE", identity)
        replicas = [replica for group in self._replicas.values() for replica in group]
        wait_until(lambda: all(map(_link_is_up, replicas)), FORM_SECONDS, "the replicas are in step")

    def _slot_ranges(self, witness: RedisServer) -> Iterator[tuple[int, int, int]]:
        rows = witness.command("CLUSTER", "SLOTS")
        assert isinstance(rows, list)
        for row in rows:
            yield row[0], row[1], row[2][1]

    def _node_at(self, port: int) -> RedisServer:
        return next(node for node in self.nodes if node.port == port)


def _role(node: RedisServer) -> str:
    return _info(node, "INFO", "replication")["role"]


def _link_is_up(node: RedisServer) -> bool:
    return _info(node, "INFO", "replication").get("master_link_status") == "up"


def _info(node: RedisServer, *command: str) -> dict[str, str]:
    with node.client() as client:
        client.response_callbacks.clear()  # the raw text is the same for every version
        try:
            text = _text(client.execute_command(*command))
        except redis.RedisError as error:
            raise AssertionError(f"node {node.port}: {error}") from error
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)


def _text(reply: object) -> str:
    if isinstance(reply, bytes):
        return reply.decode()
    assert isinstance(reply, str)
    return reply
