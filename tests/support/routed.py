"""A whole service behind the deployed Envoy configuration, closed however its test ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.envoy import Envoy, Upstream, envoy_binary
from tests.support.require import require
from tests.support.served import served
from tests.support.service import Service, free_port


@dataclass(frozen=True)
class Routed:
    """`ext_proc_port`: where the service takes calls of further Envoys."""

    service: Service
    envoy: Envoy
    upstream: Upstream
    ext_proc_port: int

    def start(self) -> None:
        """The service, then Envoy; after `apply`."""
        self.service.start()
        self.envoy.start()


@contextmanager
def routed(folder: Path, **environment: str) -> Iterator[Routed]:
    """As `served`, with Envoy in front and a model API behind; apply to the service, then `start()` both.

    Skips the test where there is no Envoy.
    """
    require(envoy_binary)
    port = free_port()
    settings = {
        "TOOLBELAY_EXT_PROC_LISTEN": f"127.0.0.1:{port}",
        "TOOLBELAY_EXT_PROC_DEADLINE_MS": "2000",
        **environment,
    }
    with (
        served(folder, **settings) as service,
        closing(Upstream()) as upstream,
        closing(Envoy(port, upstream.port)) as envoy,
    ):
        yield Routed(service, envoy, upstream, port)
