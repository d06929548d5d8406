"""Redis Cluster: each call goes to the node that holds its slot, and follows where slots move.

redis-py's NodesManager knows the topology. The calls are not left to its client because that would retry writes, know
nothing of a connection's freshness, and reset all nodes when one fails; here one lost shard costs only what lives there.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from redis import exceptions as errors
from redis.asyncio.cluster import ClusterNode, RedisCluster

from toolbelay.sessions import faults
from toolbelay.sessions.endpoint import Call, Endpoint, Reply
from toolbelay.sessions.keys import slot_of
from toolbelay.sessions.link import checked
from toolbelay.sessions.observer import StoreEvent, StoreObserver
from toolbelay.sessions.port import StateUnavailableError

MAX_REDIRECTS = 16
TRY_AGAIN_SECONDS = 0.01
REFRESH_SECONDS = 2.0  # how long one look at the topology may take
REFRESH_EVERY_SECONDS = 0.25  # at most one look in this time


class ClusterLink:
    """`redis+cluster://`.

    `client` makes an unconnected redis-py client for the seed nodes; `endpoint` makes an Endpoint for a node.
    When the shard of the generation key cannot be reached the generation reads as missing, so that the sessions of
    the other shards stay usable: the caller then asks SQL.
    """

    def __init__(
        self,
        client: Callable[[], RedisCluster],
        endpoint: Callable[[ClusterNode], Endpoint],
        observer: StoreObserver,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_client = client
        self._make_endpoint = endpoint
        self._observer = observer
        self._clock = clock
        self._nodes = client().nodes_manager
        self._endpoints: dict[str, Endpoint] = {}
        self._refreshing: asyncio.Task[None] | None = None
        self._refreshed_at = float("-inf")
        self._retired: set[asyncio.Task[None]] = set()

    async def call(self, call: Call, *, timeout: float) -> Reply:
        deadline = self._clock() + timeout
        await self._await_topology(timeout)
        if call.script is None or call.generation_key is None:
            return checked(await self._follow(call, deadline), self._observer)
        script = self._follow(replace(call, generation_key=None), deadline)
        generation = self._follow(Call(generation_key=call.generation_key), deadline)
        first, second = await asyncio.gather(script, generation, return_exceptions=True)
        if isinstance(first, BaseException):
            raise first
        checked(first, self._observer)
        if isinstance(second, StateUnavailableError):
            return replace(first, generation=None)
        if isinstance(second, BaseException):
            raise second
        lost = isinstance(second.generation, errors.ClusterError)
        return replace(first, generation=None if lost else second.generation, fresh=second.fresh, vouch=second.vouch)

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})
        for endpoint in self._endpoints.values():
            await endpoint.close()
        await asyncio.gather(*self._retired)
        await _close_nodes(self._nodes)

    async def _follow(self, call: Call, deadline: float) -> Reply:
        """Send a call to its slot's node, and on to where the Cluster says. What was refused was not applied."""
        key = call.keys[0] if call.script is not None else call.generation_key
        assert key is not None
        slot = slot_of(key)
        endpoint, asking, moved = self._endpoint_of(slot), False, False
        for _ in range(MAX_REDIRECTS):
            try:
                reply = await endpoint.call(call, timeout=deadline - self._clock(), asking=asking)
            except StateUnavailableError as error:
                if faults.is_outage(error.cause) or error.cause == faults.BREAKER_OPEN:
                    self._refresh_soon()
                raise
            refusal = _refusal(reply, call)
            if refusal is None:
                return replace(reply, fresh=reply.fresh or moved)
            next_stop = await self._redirect(refusal, slot)
            if next_stop is None:
                return reply
            endpoint, asking = next_stop
            moved = True
        raise StateUnavailableError("moved")

    async def _redirect(self, refusal: errors.ResponseError, slot: int) -> tuple[Endpoint, bool] | None:
        """Where to try next (and whether by ASKING); None when the refusal is final."""
        if isinstance(refusal, errors.MovedError):
            self._observer.happened(StoreEvent.REDIRECTED)
            await self._nodes.move_slot(refusal)
            self._disturb()
            self._refresh_soon()
            return self._endpoint_of(slot), False
        if isinstance(refusal, errors.AskError):
            self._observer.happened(StoreEvent.REDIRECTED)
            node = self._nodes.get_node(refusal.host, refusal.port)
            if node is None:  # it has joined since the last look
                node = ClusterNode(refusal.host, refusal.port, **self._nodes.connection_kwargs)
                self._refresh_soon()
            return self._endpoint_at(node), True
        if isinstance(refusal, errors.TryAgainError):
            await asyncio.sleep(TRY_AGAIN_SECONDS)
            return self._endpoint_of(slot), False
        if isinstance(refusal, errors.ClusterDownError | errors.ReadOnlyError):
            self._refresh_soon()
        return None

    def _endpoint_of(self, slot: int) -> Endpoint:
        try:
            return self._endpoint_at(self._nodes.get_node_from_slot(slot))
        except (errors.RedisClusterException, KeyError) as error:  # the slot has no node
            self._refresh_soon()
            raise StateUnavailableError("clusterdown") from error

    def _endpoint_at(self, node: ClusterNode) -> Endpoint:
        endpoint = self._endpoints.get(node.name)
        if endpoint is None:
            endpoint = self._endpoints[node.name] = self._make_endpoint(node)
        return endpoint

    def _disturb(self) -> None:
        for endpoint in self._endpoints.values():
            endpoint.disturb()

    async def _await_topology(self, timeout: float) -> None:
        if self._nodes.slots_cache:
            return
        self._refresh_soon()
        if self._refreshing is not None:
            await asyncio.wait({self._refreshing}, timeout=max(timeout, 0))
        if not self._nodes.slots_cache:
            looking = self._refreshing is not None and not self._refreshing.done()
            raise StateUnavailableError(faults.TIMEOUT if looking else faults.CONNECTION)

    def _refresh_soon(self) -> None:
        """Look at the topology again, one look at a time, beside the calls."""
        running = self._refreshing is not None and not self._refreshing.done()
        if running or self._clock() - self._refreshed_at < REFRESH_EVERY_SECONDS:
            return
        self._refreshed_at = self._clock()
        self._refreshing = asyncio.create_task(self._refresh(), name="toolbelay-cluster-topology")

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(REFRESH_SECONDS):
                await self._nodes.initialize()
        except (errors.RedisError, errors.RedisClusterException, OSError, LookupError):
            # None of the nodes known last answers: begin from the seeds, whose names may lead elsewhere by now.
            stale, self._nodes = self._nodes, self._make_client().nodes_manager
            self._nodes.slots_cache, self._nodes.nodes_cache = stale.slots_cache, stale.nodes_cache
            await _close_nodes(stale)
            return
        self._disturb()
        for name in self._endpoints.keys() - self._nodes.nodes_cache.keys():
            task = asyncio.create_task(self._endpoints.pop(name).close())
            self._retired.add(task)
            task.add_done_callback(self._retired.discard)


def _refusal(reply: Reply, call: Call) -> errors.ResponseError | None:
    answer = reply.value if call.script is not None else reply.generation
    return answer if isinstance(answer, errors.ResponseError) else None


async def _close_nodes(nodes: Any) -> None:
    """Close the connections that redis-py used to ask for the topology."""
    for attribute in ("nodes_cache", "startup_nodes"):
        with contextlib.suppress(errors.RedisError, OSError):
            await nodes.aclose(attribute)
