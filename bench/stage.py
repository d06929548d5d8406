"""The servers of a bench run: Valkey, the service on its own SQLite file, the limits beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import psutil

from bench import world
from bench.generator import Record
from bench.limits import METHOD
from tests.support.servers import RedisServer
from tests.support.service import Service, free_port, migrated, token
from tests.support.waiting import wait_until
from toolbelay.v1 import selection_pb2 as pb

TENANT = "bench"
SERVE = "bench.served"


@dataclass(frozen=True, slots=True)
class Stage:
    """One running service with one catalog; a tenant for each policy set."""

    service: Service
    redis: RedisServer
    tools: list[dict[str, Any]]
    folder: Path
    ext_proc_port: int = 0

    @property
    def ids(self) -> list[str]:
        """Every tool id of the catalog."""
        return [world.tool_id(tool) for tool in self.tools]

    def processes(self) -> list[psutil.Process]:
        """The workers."""
        main = psutil.Process(self.service.process.pid)
        return main.children(recursive=True) or [main]

    def await_index(self) -> None:
        """Return when the ranking index is there."""
        record = Record.of(bearer("waiting"), pb.SelectToolsRequest(query="create an invoice"))
        wait_until(lambda: select(self.service.port, record).receipt.strategy == "hybrid", 120)

    def memory(self) -> float:
        """MB resident in the largest worker."""
        return max(process.memory_info().rss for process in self.processes()) / 1e6

    def cpu(self) -> float:
        """Seconds of processor time that the workers have used."""
        times = [process.cpu_times() for process in self.processes()]
        return sum(t.user + t.system for t in times)

    def redis_counts(self) -> tuple[int, int]:
        """(reads from clients' sockets, commands), the latter with those that scripts run."""
        stats = self.redis.command("INFO", "stats")
        assert isinstance(stats, dict)
        return int(stats["total_reads_processed"]), int(stats["total_commands_processed"])


@contextlib.contextmanager
def staged(
    redis: RedisServer,
    folder: Path,
    tools: list[dict[str, Any]],
    tenants: Mapping[str, Mapping[str, str]],
    *,
    workers: int = 1,
    ext_proc: bool = False,
) -> Iterator[Stage]:
    """A service that serves `tools` to each tenant under its policies."""
    folder.mkdir(exist_ok=True)
    ext_proc_port = free_port() if ext_proc else 0
    more = {"TOOLBELAY_WORKERS": str(workers)} if workers > 1 else {}
    if ext_proc:
        more |= {"TOOLBELAY_EXT_PROC_LISTEN": f"127.0.0.1:{ext_proc_port}", "TOOLBELAY_EXT_PROC_DEADLINE_MS": "5000"}
    service = Service(
        migrated(f"sqlite+aiosqlite:///{folder}/catalog.db"),
        redis.url,
        folder,
        entry=SERVE,
        TOOLBELAY_LOG_LEVEL="warning",
        **more,
    )
    try:
        for tenant, policies in tenants.items():
            service.apply(tools, policies, world.routes(), tenant=tenant)
        service.start(wait=False).wait(120)
        yield Stage(service, redis, tools, folder, ext_proc_port)
    finally:
        service.close()


def bearer(subject: str, tenant: str = TENANT, roles: tuple[str, ...] = world.ROLE_SETS[0]) -> str:
    """A token that lasts as long as the bench."""
    return token(subject, tenant, roles=roles, ttl_seconds=4 * 3600)


def call(port: int, record: Record, method: str = METHOD) -> bytes:
    """The answer to one record's first message."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        raw = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        answer: bytes = raw(record.message, metadata=(("authorization", record.authorization.decode()),), timeout=30)
        return answer


def select(port: int, record: Record) -> pb.SelectToolsResponse:
    """The answer to one record of SelectTools."""
    return pb.SelectToolsResponse.FromString(call(port, record))


def port() -> int:
    """A port for a limit."""
    return free_port()
