"""The session store's contract on a Cluster of three primaries, and what only a Cluster does."""

from __future__ import annotations

import pytest

from tests.contract import session_store_contract as contract
from tests.contract import session_store_endings as endings
from tests.contract.session_store_tools import Place
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


class TestEnd(endings.EndContract):
    pass


class TestOther(endings.OtherContract):
    pass
