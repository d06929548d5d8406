"""The session store's contract on a Cluster of three primaries, and what only a Cluster does."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest
from toolbelay.sessions.keys import KeyMaker, slot_of
from toolbelay.sessions.observer import StoreEvent
from toolbelay.sessions.port import Found

from tests.contract import session_store_contract as contract
from tests.contract.session_store_tools import REF, SECRET, TIMEOUT, Place, Session, Stores
from tests.support.cluster import RedisCluster


@pytest.fixture
def place(redis_cluster: RedisCluster) -> Place:
    return Place(redis_cluster.url, redis_cluster.nodes, redis_cluster)


class TestTurns(contract.TurnContract):
    pass


class TestConcurrency(contract.ConcurrencyContract):
    pass


class TestMerge(contract.MergeContract):
    pass


class TestEnd(contract.EndContract):
    pass


class TestOther(contract.OtherContract):
    pass
