"""The one wrapper around every RPC, over a real connection."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import grpc
import grpc.aio
import pytest
import structlog
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from tests.support.edge import ADMIN, USER, StubSelection, raw, running_edge
from tests.support.waiting import wait_until_async
from toolbelay.api.methods import ADMIN_SERVICE, METHODS, SELECTION_SERVICE
from toolbelay.errors import ErrorReason, ToolbelayError, invalid
from toolbelay.sessions.port import StateUnavailableError
from toolbelay.storage.port import StorageUnavailableError
from toolbelay.v1 import admin_pb2, admin_pb2_grpc, selection_pb2, selection_pb2_grpc

SELECT = f"/{SELECTION_SERVICE}/SelectTools"


async def refusal(call: Awaitable[Any]) -> tuple[grpc.StatusCode, str, list[str]]:
    """Code, reason ("" without ErrorInfo) and violated fields of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    status = rpc_status.from_call(caught.value)  # type: ignore[arg-type]  # an aio error has what is needed
    info, bad = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
    for detail in status.details if status else ():
        detail.Unpack(info)
        detail.Unpack(bad)
    return caught.value.code(), info.reason, [violation.field for violation in bad.field_violations]


def test_the_method_table_equals_the_rpc_set() -> None:
    found = {
        (service.full_name, name, rpc.client_streaming, rpc.server_streaming, rpc.input_type.name)
        for module in (selection_pb2, admin_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for name, rpc in service.methods_by_name.items()
    }
    assert found == {
        (m.service, m.name, m.client_streaming, m.server_streaming, m.request.DESCRIPTOR.name) for m in METHODS
    }


def test_every_admin_method_needs_the_admin_role() -> None:
    assert all((method.role == "toolbelay.admin") == (method.service == ADMIN_SERVICE) for method in METHODS)


def test_a_servicer_without_a_method_is_refused_at_start() -> None:
    from toolbelay.api.interceptor import Gate
    from toolbelay.telemetry.metrics import Metrics

    async def build() -> None:
        Gate(None, Metrics(), max_concurrent=1).handlers({SELECTION_SERVICE: object()})  # type: ignore[arg-type]

    with pytest.raises(LookupError, match="SelectTools"):
        asyncio.run(build())


async def test_a_call_reaches_its_servicer_with_principal_and_deadline() -> None:
    stub = StubSelection()
    async with running_edge(stub) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        client = selection_pb2_grpc.ToolSelectionServiceStub(channel)
        now = asyncio.get_running_loop().time()
        await client.SelectTools(selection_pb2.SelectToolsRequest(), metadata=USER, timeout=5)
        await client.SelectTools(selection_pb2.SelectToolsRequest(), metadata=USER)
    assert stub.calls[0].principal.subject == "u1"
    assert now < stub.calls[0].deadline <= now + 6
    assert stub.calls[1].deadline == float("inf")
    assert stub.calls[0].method == "SelectTools"


async def test_without_a_valid_token_nothing_is_served() -> None:
    stub = StubSelection()
    async with running_edge(stub) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        for method in METHODS:
            if method.client_streaming:
                call: Any = raw(channel).stream_unary(f"/{method.service}/{method.name}")(iter([b""]))
            elif method.server_streaming:
                call = raw(channel).unary_stream(f"/{method.service}/{method.name}")(b"").read()
            else:
                call = raw(channel).unary_unary(f"/{method.service}/{method.name}")(b"")
            assert (await refusal(call))[:2] == (grpc.StatusCode.UNAUTHENTICATED, "TOKEN_MISSING"), method
        bad = raw(channel).unary_unary(SELECT)
        for pairs in ((("authorization", "Bearer x"),), (*USER, ("authorization", "Bearer x"))):
            assert (await refusal(bad(b"", metadata=pairs)))[1] == "TOKEN_INVALID"
        refused = edge.metrics.registry.get_sample_value("toolbelay_tokens_refused_total", {"reason": "TOKEN_MISSING"})
    assert not stub.calls
    assert refused == len(METHODS)


async def test_admin_methods_need_the_role() -> None:
    async with running_edge() as edge, grpc.aio.insecure_channel(edge.target) as channel:
        client = admin_pb2_grpc.AdminServiceStub(channel)
        chunks = [admin_pb2.ApplyConfigRequest(end=admin_pb2.ApplyEnd())] * 3
        denied: tuple[grpc.StatusCode, str, list[str]] = (grpc.StatusCode.PERMISSION_DENIED, "ADMIN_ROLE_REQUIRED", [])
        assert await refusal(client.ExplainDecision(admin_pb2.ExplainDecisionRequest(), metadata=USER)) == denied
        assert await refusal(client.ApplyConfig(iter(chunks), metadata=USER)) == denied
        assert await refusal(client.GetConfig(admin_pb2.GetConfigRequest(), metadata=USER).read()) == denied
        assert (await client.ApplyConfig(iter(chunks), metadata=ADMIN)).generation == 3
        items = [item async for item in client.GetConfig(admin_pb2.GetConfigRequest(), metadata=ADMIN)]
    assert len(items) == 2


async def test_unknown_methods_are_not_served() -> None:
    async with running_edge() as edge, grpc.aio.insecure_channel(edge.target) as channel:
        code, reason, _ = await refusal(
            raw(channel).unary_unary(f"/{SELECTION_SERVICE}/DropTenant")(b"", metadata=ADMIN)
        )
    assert (code, reason) == (grpc.StatusCode.UNIMPLEMENTED, "")


@pytest.mark.parametrize("message", [b"\xff\xff\xff", b"\x22\x02\xc3\x28", b"\x0a\x05ab"], ids=["bytes", "utf8", "cut"])
async def test_an_undecodable_message_names_no_field(message: bytes) -> None:
    async with running_edge() as edge, grpc.aio.insecure_channel(edge.target) as channel:
        found = await refusal(raw(channel).unary_unary(SELECT)(message, metadata=USER))
        stream = raw(channel).stream_unary(f"/{ADMIN_SERVICE}/ApplyConfig")
        streamed = await refusal(stream(iter([b"", b"\xff\xff"]), metadata=ADMIN))
    assert found == streamed == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", [])


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (invalid("query", "too long"), (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_REQUEST", ["query"])),
        (ToolbelayError(ErrorReason.ROUTE_NOT_FOUND, "no"), (grpc.StatusCode.NOT_FOUND, "ROUTE_NOT_FOUND", [])),
        (StateUnavailableError("timeout"), (grpc.StatusCode.UNAVAILABLE, "STATE_UNAVAILABLE", [])),
        (StorageUnavailableError("down"), (grpc.StatusCode.UNAVAILABLE, "AUTHORITY_UNVERIFIABLE", [])),
    ],
)
async def test_errors_are_told(raised: Exception, expected: tuple[grpc.StatusCode, str, list[str]]) -> None:
    stub = StubSelection(raises=raised)
    async with running_edge(stub) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        assert await refusal(raw(channel).unary_unary(SELECT)(b"", metadata=USER)) == expected


async def test_an_unforeseen_fault_is_opaque_and_its_log_has_no_content() -> None:
    stub = StubSelection(raises=ValueError("the user's words and Bearer abc"))
    with structlog.testing.capture_logs() as lines:
        async with running_edge(stub) as edge, grpc.aio.insecure_channel(edge.target) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await raw(channel).unary_unary(SELECT)(b"", metadata=USER)
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    details = caught.value.details() or ""
    logged = next(line for line in lines if line["event"] == "internal_error")
    assert logged["incident"] in details
    assert logged["kind"] == "ValueError"
    assert any("edge.py" in frame for frame in logged["frames"])
    assert "words" not in details + repr(lines)


async def test_over_the_bound_calls_are_refused_but_health_is_not() -> None:
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    stub = StubSelection(hold=asyncio.Event())
    async with running_edge(stub, max_concurrent=2) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        call = raw(channel).unary_unary(SELECT)
        running = [asyncio.ensure_future(call(b"", metadata=USER)) for _ in range(2)]
        await wait_until_async(lambda: edge.gate.in_flight == 2, timeout=10)
        refused = await refusal(call(b"", metadata=USER))
        health = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert stub.hold is not None
        stub.hold.set()
        await asyncio.gather(*running)
        await call(b"", metadata=USER)
    assert refused == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", [])
    assert health.status == health_pb2.HealthCheckResponse.SERVING


async def test_a_cancelled_call_cancels_its_work_and_frees_its_place() -> None:
    stub = StubSelection(hold=asyncio.Event())
    async with running_edge(stub) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        call = raw(channel).unary_unary(SELECT)(b"", metadata=USER)
        pending = asyncio.ensure_future(call.initial_metadata())
        await asyncio.wait_for(stub.entered.wait(), 10)
        call.cancel()
        await asyncio.wait_for(stub.cancelled.wait(), 10)
        await wait_until_async(lambda: edge.gate.in_flight == 0)
        counted = edge.metrics.registry.get_sample_value(
            "toolbelay_calls_total", {"method": "SelectTools", "code": "CANCELLED"}
        )
        pending.cancel()
        await asyncio.gather(pending, return_exceptions=True)
    assert counted == 1


async def test_before_readiness_calls_are_refused() -> None:
    stub = StubSelection()
    async with running_edge(stub, ready=False) as edge, grpc.aio.insecure_channel(edge.target) as channel:
        call = raw(channel).unary_unary(SELECT)
        refused = await refusal(call(b"", metadata=USER))
        await edge.server.set_ready(ready=True)
        await call(b"", metadata=USER)
        await edge.server.set_ready(ready=False)  # a later fault has its own reasons
        await call(b"", metadata=USER)
    assert refused == (grpc.StatusCode.UNAVAILABLE, "NOT_READY", [])
    assert len(stub.calls) == 2


async def test_an_answer_over_the_limit_says_what_helps() -> None:
    async with running_edge(StubSelection(answer=bytes(24 * 1024 * 1024 + 1))) as edge:
        options = [("grpc.max_receive_message_length", -1)]
        async with grpc.aio.insecure_channel(edge.target, options=options) as channel:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await raw(channel).unary_unary(SELECT)(b"", metadata=USER)
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "omit_definitions" in (caught.value.details() or "")
