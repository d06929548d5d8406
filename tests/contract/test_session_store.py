"""The session store's contract on one server: Valkey 9 and Redis 8."""

from __future__ import annotations

import pytest

from tests.contract import session_store_contract as contract
from tests.contract import session_store_endings as endings
from tests.contract.session_store_tools import Place
from tests.support.servers import RedisServer


@pytest.fixture
def place(redis_server: RedisServer) -> Place:
    return Place(redis_server.url, [redis_server])


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
