"""One running service for the scenarios of a turn; each scenario plays in a tenant of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.support.served import served
from tests.support.service import Service
from tests.support.world import World


@pytest.fixture(scope="session")
def turn_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service on SQLite and Valkey. Shared: scenarios keep to tenants of their own and leave it running."""
    with served(tmp_path_factory.mktemp("turns")) as service:
        yield service.start()
        # Whatever a scenario sends, the service answers it by its own rules.
        assert "Traceback" not in service.log.read_text(), service.log.read_text()[-5000:]


@pytest.fixture
def world(request: pytest.FixtureRequest, turn_service: Service) -> Callable[..., World]:
    """A factory `(letters="abc…z", policies=permit all, **default route)` of fresh tenants."""
    made: list[World] = []

    def make(**config: object) -> World:
        tenant = f"{request.node.nodeid.rpartition('::')[2]}-{len(made)}"
        made.append(World(turn_service, tenant, **config))  # type: ignore[arg-type]
        return made[-1]

    return make
