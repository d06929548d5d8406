"""The real service as a process, the CLI's own apply path, and a client that speaks plain gRPC."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import grpc

from tests.support.waiting import wait_until
from toolbelay.application.apply_bundle import ConfigBundle, SourceFile
from toolbelay.application.apply_config import ApplyConfig, ApplyResult
from toolbelay.application.apply_plan import ApplyOptions
from toolbelay.application.runtime import open_store
from toolbelay.authority.minting import SigningKey, mint
from toolbelay.settings import load
from toolbelay.storage.engine import Database
from toolbelay.storage.migrate import upgrade
from toolbelay.storage.writer import SqlConfigWriter
from toolbelay.telemetry.metrics import Metrics
from toolbelay.v1 import admin_pb2_grpc, selection_pb2_grpc
from toolbelay.v1 import selection_pb2 as pb

SECRET = "a secret of the tests, thirty-two bytes"
ISSUER = "https://issuer.test"
AUDIENCE = "toolbelay"
PERMIT_ALL = "permit (principal, action, resource);"


def free_port() -> int:
    """A port that nobody listens on. The service refuses one that is bound, so it cannot be kept reserved."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def tool(
    tool_id: str,
    description: str = "",
    schema: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A line of tools/*.jsonl."""
    toolset, _, name = tool_id.partition("/")
    given = {"type": "object", "properties": {}} if schema is None else schema
    return {"toolset": toolset, "name": name, "description": description, "input_schema": given, **more}


def token(subject: str = "alice", tenant: str = "acme", **more: Any) -> str:
    """A token that the service of these tests accepts."""
    key = SigningKey.from_secret(SECRET.encode())
    return mint(key, issuer=ISSUER, audience=AUDIENCE, subject=subject, tenant=tenant, **more)


def bundle(
    tools: Iterable[Mapping[str, Any]] | None = None,
    policies: Mapping[str, str] | None = None,
    routes: Mapping[str, Any] | None = None,
) -> ConfigBundle:
    """A bundle as `toolbelay apply` reads it from a folder."""
    lines = None if tools is None else "\n".join(json.dumps(t, ensure_ascii=False) for t in tools).encode()
    return ConfigBundle(
        tools=None if lines is None else (SourceFile("tools.jsonl", lines),),
        policies=None
        if policies is None
        else tuple(SourceFile(name, text.encode()) for name, text in policies.items()),
        routes=None if routes is None else SourceFile("routes.yaml", json.dumps({"routes": routes}).encode()),
    )


class Service:
    """One replica. `environment` holds what the tests add to the documented settings; `entry` is the module it runs."""

    def __init__(
        self,
        database_url: str,
        redis_url: str,
        folder: Path,
        *,
        entry: str = "tests.support.serve_main",
        **environment: str,
    ) -> None:
        self.port = free_port()
        self._entry = entry
        self.environment = {
            "TOOLBELAY_LISTEN": f"127.0.0.1:{self.port}",
            "TOOLBELAY_DATABASE_URL": database_url,
            "TOOLBELAY_REDIS_URL": redis_url,
            "TOOLBELAY_STATE_SECRET": SECRET,
            "TOOLBELAY_JWT_ISSUER": ISSUER,
            "TOOLBELAY_JWT_AUDIENCE": AUDIENCE,
            "TOOLBELAY_JWT_HS256_SECRET": SECRET,
            "TOOLBELAY_LOG_LEVEL": "info",
            **environment,
        }
        self.log = folder / f"service-{self.port}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: grpc.Channel | None = None

    def start(self, *, wait: bool = True) -> Self:
        """Start; with `wait` return once it answers SERVING."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._entry],
                env={**os.environ, **self.environment},
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        return self.wait() if wait else self

    def wait(self, timeout: float = 20) -> Self:
        """Return once it answers SERVING."""
        wait_until(self.serving, timeout=timeout)
        return self

    def serving(self) -> bool:
        """Whether health says SERVING; fails when the process ended."""
        if self.process.poll() is not None:
            raise AssertionError(f"the service ended: {self.log.read_text()[-3000:]}")
        return self.health() == 1

    def health(self) -> int:
        """1 = SERVING, 2 = NOT_SERVING, 0 = no answer."""
        check = self.channel.unary_unary(
            "/grpc.health.v1.Health/Check", request_serializer=bytes, response_deserializer=bytes
        )
        try:
            answer: bytes = check(b"", timeout=2)
        except grpc.RpcError:
            return 0
        return answer[1] if len(answer) > 1 else 0

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "not started"
        return self._process

    @property
    def channel(self) -> grpc.Channel:
        if self._channel is None:
            self._channel = grpc.insecure_channel(
                f"127.0.0.1:{self.port}",
                options=[
                    ("grpc.max_receive_message_length", 32 << 20),
                    ("grpc.max_send_message_length", 32 << 20),
                    ("grpc.initial_reconnect_backoff_ms", 50),
                    ("grpc.max_reconnect_backoff_ms", 200),
                ],
            )
        return self._channel

    def terminate(self, timeout: float = 20) -> int:
        """SIGTERM and wait; the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        if self._process is not None and self._process.poll() is None:
            self.kill()

    def client(self, subject: str = "alice", tenant: str = "acme", **more: Any) -> Client:
        return Client(self.channel, token(subject, tenant, **more))

    def apply(
        self,
        tools: Iterable[Mapping[str, Any]] | None = None,
        policies: Mapping[str, str] | None = None,
        routes: Mapping[str, Any] | None = None,
        *,
        tenant: str = "acme",
        prune: bool = False,
    ) -> ApplyResult:
        """Apply through the use case, as the CLI does: acknowledged when it returns."""
        work = apply_config(self.environment, tenant, bundle(tools, policies, routes), prune=prune)
        result: ApplyResult = in_thread(work)
        return result


class Client:
    """Calls with one token."""

    def __init__(self, channel: grpc.Channel, bearer: str) -> None:
        self._metadata = (("authorization", f"Bearer {bearer}"),)
        self.selection = selection_pb2_grpc.ToolSelectionServiceStub(channel)
        self.admin = admin_pb2_grpc.AdminServiceStub(channel)

    def select(
        self,
        session: str = "",
        *,
        candidates: Mapping[str, float] | Sequence[str] = (),
        offered: Sequence[bytes] = (),
        timeout: float | None = 10,
        **fields: Any,
    ) -> pb.SelectToolsResponse:
        """SelectTools. `candidates`: ids by score, or ids best first."""
        scored = (
            candidates
            if isinstance(candidates, Mapping)
            else {tool_id: float(len(candidates) - i) for i, tool_id in enumerate(candidates)}
        )
        request = pb.SelectToolsRequest(
            session_id=session,
            candidates=[pb.RankedCandidate(tool_id=t, score=s) for t, s in scored.items()],
            offered_tools=[pb.OfferedTool(definition=d) for d in offered],
            **fields,
        )
        answer: pb.SelectToolsResponse = self.selection.SelectTools(request, metadata=self._metadata, timeout=timeout)
        return answer

    def authorize(
        self, session: str, names: Sequence[str], *, caller_tools: Sequence[str] = (), timeout: float = 10, **more: Any
    ) -> pb.AuthorizeToolCallsResponse:
        request = pb.AuthorizeToolCallsRequest(
            session_id=session,
            calls=[pb.ToolCall(call_id=f"c{i}", name=name) for i, name in enumerate(names)],
            caller_tools=caller_tools,
            **more,
        )
        answer: pb.AuthorizeToolCallsResponse = self.selection.AuthorizeToolCalls(
            request, metadata=self._metadata, timeout=timeout
        )
        return answer

    def session(self, session: str, route: str = "") -> pb.GetSessionResponse:
        request = pb.GetSessionRequest(session_id=session, route=route)
        answer: pb.GetSessionResponse = self.selection.GetSession(request, metadata=self._metadata, timeout=10)
        return answer

    def end(self, session: str, route: str = "") -> None:
        request = pb.EndSessionRequest(session_id=session, route=route)
        self.selection.EndSession(request, metadata=self._metadata, timeout=10)


async def apply_config(
    environment: Mapping[str, str], tenant: str, config: ConfigBundle, *, prune: bool = False
) -> ApplyResult:
    """One apply with the settings of a service."""
    settings = load(environment)
    database = Database(settings.database_url.get_secret_value(), pool_size=1)
    store = open_store(settings, Metrics())
    try:
        use_case = ApplyConfig(SqlConfigWriter(database), store)
        return await use_case.run(tenant, config, who="test", options=ApplyOptions(prune=prune))
    finally:
        await store.close()
        await database.close()


def migrated(database_url: str) -> str:
    """The same URL, once its schema is at the head."""
    upgrade(database_url)
    return database_url


def ids(answer: pb.SelectToolsResponse) -> list[str]:
    """Tool ids of an answer, in order."""
    return [t.tool_id for t in answer.tools]


def in_thread(work: Any) -> Any:
    """Run a coroutine to its end, wherever the caller is."""
    result: list[Any] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            result.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 - handed to the caller
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]
