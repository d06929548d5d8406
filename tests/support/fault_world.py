"""A replica behind faulty wires: PostgreSQL and Valkey of its own, a proxy before each, metrics and logs to read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.request import urlopen

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from prometheus_client.parser import text_string_to_metric_families

from tests.support.proxy import Proxy
from tests.support.servers import PostgresServer, RedisServer
from tests.support.service import (
    PERMIT_ALL,
    Client,
    Service,
    apply_config,
    bundle,
    free_port,
    in_thread,
    migrated,
    tool,
)
from tests.support.waiting import wait_until
from toolbelay.application.apply_bundle import ConfigBundle
from toolbelay.application.apply_config import ApplyConfig, ApplyResult
from toolbelay.application.apply_plan import ApplyOptions
from toolbelay.storage.engine import Database
from toolbelay.storage.writer import SqlConfigWriter
from toolbelay.v1 import selection_pb2 as pb

TOOLS: Final = tuple(f"crm/{letter}" for letter in "abcdefgh")
POLL_SECONDS: Final = 0.4
UNVERIFIED_SECONDS: Final = 6.0
ROUTES: Final = {
    "default": {"strategy": "caller", "on_no_match": "none", "sticky": {"max_tools": 8}},
    "words": {"strategy": "keyword"},
}


class FaultWorld:
    """`sql` and `wire` are the proxies that the replicas go through; the admin goes straight to the servers."""

    def __init__(self, folder: Path, stack: ExitStack, *, replicas: int = 1, **environment: str) -> None:
        self.postgres = PostgresServer(max_connections=40)
        stack.callback(self.postgres.close)
        self.redis = RedisServer("valkey", "--repl-diskless-sync-delay", "0")
        stack.callback(self.redis.close)
        self.postgres.start()
        self.redis.start()
        self.sql = stack.enter_context(Proxy(self.postgres.port))
        self.wire = stack.enter_context(Proxy(self.redis.port))
        self.database = self.postgres.create_database()
        self._admin = Service(migrated(self._url(self.postgres.port)), self.redis.url, folder)
        self.apply()
        self.replicas = [
            Service(
                self._url(self.sql.port),
                f"redis://127.0.0.1:{self.wire.port}/0",
                folder,
                TOOLBELAY_AUTHORITY_POLL_SECONDS=str(POLL_SECONDS),
                TOOLBELAY_AUTHORITY_MAX_UNVERIFIED_SECONDS=str(UNVERIFIED_SECONDS),
                TOOLBELAY_METRICS_LISTEN=f"127.0.0.1:{free_port()}",
                **environment,
            )
            for _ in range(replicas)
        ]
        for replica in self.replicas:
            stack.callback(replica.close)
            replica.start(wait=False)
        for replica in self.replicas:
            replica.wait()

    @property
    def service(self) -> Service:
        return self.replicas[0]

    @property
    def admin_environment(self) -> dict[str, str]:
        """Settings that reach the servers past the proxies."""
        return self._admin.environment

    def apply(self, *, without: Sequence[str] = (), denied: Sequence[str] = (), tenant: str = "acme") -> ApplyResult:
        """Apply the tools but `without`, all permitted but `denied`."""
        config = _config(without=without, denied=denied)
        result: ApplyResult = in_thread(apply_config(self.admin_environment, tenant, config, prune=True))
        return result

    def commit(self, *, denied: Sequence[str] = ()) -> int:
        """As `apply`, by an admin who does not get as far as the raise: the generation in SQL."""
        generation: int = in_thread(self._commit(_config(denied=denied)))
        return generation

    async def _commit(self, config: ConfigBundle) -> int:
        database = Database(self._url(self.postgres.port), pool_size=1)
        try:
            use_case = ApplyConfig(SqlConfigWriter(database), _NoRaise())
            return (await use_case.run("acme", config, who="test", options=ApplyOptions(prune=True))).generation
        finally:
            await database.close()

    def client(self, subject: str = "alice", *, replica: int = 0, **more: Any) -> Client:
        return self.replicas[replica].client(subject, **more)

    def cure(self) -> None:
        """Undo every fault, and wait until a session works again."""
        for server in (self.postgres, self.redis):
            if server.running:
                server.resume()
            else:
                server.start()
        self.redis.command("CONFIG", "SET", "maxmemory", 0)
        self.redis.command("REPLICAOF", "NO", "ONE")
        self.sql.forward()
        self.wire.forward()
        for replica in self.replicas:
            client = replica.client("curing")
            wait_until(lambda c=client: works(c), 20, "the replica works again")  # type: ignore[misc]

    def metric(self, name: str, /, replica: int = 0, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        address = self.replicas[replica].environment["TOOLBELAY_METRICS_LISTEN"]
        with urlopen(f"http://{address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return sum(
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def logged(self, event: str, *, replica: int = 0) -> list[dict[str, Any]]:
        """Log lines of an event."""
        lines = self.replicas[replica].log.read_text().splitlines()
        parsed = [json.loads(line) for line in lines if line.startswith("{")]
        return [line for line in parsed if line["event"] == event]

    def _url(self, port: int) -> str:
        return f"postgresql+psycopg://postgres@127.0.0.1:{port}/{self.database}"


class _NoRaise:
    async def raise_generation(self, _tenant: str, generation: int, *, timeout: float) -> int:
        return generation


def _config(*, without: Sequence[str] = (), denied: Sequence[str] = ()) -> ConfigBundle:
    forbids = "".join(f'forbid (principal, action, resource == Tool::"{t}");' for t in denied)
    return bundle([tool(t) for t in TOOLS if t not in without], {"all.cedar": PERMIT_ALL + forbids}, ROUTES)


@contextmanager
def fault_world(folder: Path, *, replicas: int = 1, **environment: str) -> Iterator[FaultWorld]:
    with ExitStack() as stack:
        yield FaultWorld(folder, stack, replicas=replicas, **environment)


def works(client: Client) -> bool:
    """Whether a turn keeps state and SQL is believed."""
    try:
        answer = client.select("cured", candidates=TOOLS[:2], timeout=1)
    except grpc.RpcError:
        return False
    return answer.receipt.outcome != pb.OUTCOME_STATELESS


def reason_of(call: Callable[[], object]) -> str:
    """The ErrorInfo's reason that a call fails with, with its code; "OK" when it succeeds."""
    try:
        call()
    except grpc.RpcError as error:
        call_: Any = error  # a raised RpcError is a Call too
        status = rpc_status.from_call(call_)
        if status is not None:
            for detail in status.details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    return f"{call_.code().name} {info.reason}"
        return str(call_.code().name)
    return "OK"


def told(answer: pb.SelectToolsResponse) -> tuple[str, str]:
    """(outcome, reason) without their prefixes."""
    outcome = pb.Outcome.Name(answer.receipt.outcome).removeprefix("OUTCOME_")
    return outcome, pb.Reason.Name(answer.receipt.reason).removeprefix("REASON_")


def soon(condition: Callable[[], object], promised: float, message: str = "") -> None:
    """`condition` comes true within a promised time, plus what a busy machine adds to everything."""
    wait_until(condition, promised + 3.0, message)


def elapsed(began: float) -> float:
    return time.monotonic() - began
