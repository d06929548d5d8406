"""The method table: every RPC that this service answers, and what it asks of the caller.

What is not in this table is not served. A test holds it equal to the RPC set of the services.
"""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import Message

from toolbelay.v1 import admin_pb2, selection_pb2

SELECTION_SERVICE = "toolbelay.v1.ToolSelectionService"
ADMIN_SERVICE = "toolbelay.v1.AdminService"
ADMIN_ROLE = "toolbelay.admin"


@dataclass(frozen=True, slots=True)
class Method:
    """One RPC. `role`: what the verified token must hold besides being valid, "" = nothing."""

    service: str
    name: str
    request: type[Message]
    role: str = ""
    client_streaming: bool = False
    server_streaming: bool = False


METHODS: tuple[Method, ...] = (
    Method(SELECTION_SERVICE, "SelectTools", selection_pb2.SelectToolsRequest),
    Method(SELECTION_SERVICE, "AuthorizeToolCalls", selection_pb2.AuthorizeToolCallsRequest),
    Method(SELECTION_SERVICE, "GetSession", selection_pb2.GetSessionRequest),
    Method(SELECTION_SERVICE, "EndSession", selection_pb2.EndSessionRequest),
    Method(ADMIN_SERVICE, "ApplyConfig", admin_pb2.ApplyConfigRequest, ADMIN_ROLE, client_streaming=True),
    Method(ADMIN_SERVICE, "GetConfig", admin_pb2.GetConfigRequest, ADMIN_ROLE, server_streaming=True),
    Method(ADMIN_SERVICE, "ExplainDecision", admin_pb2.ExplainDecisionRequest, ADMIN_ROLE),
    Method(ADMIN_SERVICE, "EndSessions", admin_pb2.EndSessionsRequest, ADMIN_ROLE),
)
