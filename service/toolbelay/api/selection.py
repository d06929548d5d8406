"""ToolSelectionService: thin, one use case a method."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from toolbelay.api.context import CallContext
from toolbelay.api.convert import (
    DENIALS,
    VERDICTS,
    ResponseWriter,
    authorize_request,
    required_session,
    select_request,
)
from toolbelay.api.encode import ItemEncoder
from toolbelay.application.authorize import AuthorizeToolCalls
from toolbelay.application.select import SelectTools
from toolbelay.application.sessions import Sessions
from toolbelay.sessions.port import Found
from toolbelay.v1 import selection_pb2 as pb


class SelectionServicer:
    """Methods as `api.interceptor.Gate` calls them."""

    def __init__(self, select: SelectTools, authorize: AuthorizeToolCalls, sessions: Sessions) -> None:
        self._select = select
        self._authorize = authorize
        self._sessions = sessions
        self.encoder = ItemEncoder()
        self._writer = ResponseWriter(self.encoder)

    async def SelectTools(self, message: pb.SelectToolsRequest, call: CallContext) -> bytes:
        request = select_request(message)
        answer = await self._select(call.principal, request, deadline=call.deadline)
        return self._writer.write(
            answer, omit_definitions=message.omit_definitions, known_fingerprints=message.known_fingerprints
        )

    async def AuthorizeToolCalls(
        self, message: pb.AuthorizeToolCallsRequest, call: CallContext
    ) -> pb.AuthorizeToolCallsResponse:
        request = authorize_request(message)
        answer = await self._authorize(call.principal, request, deadline=call.deadline)
        return pb.AuthorizeToolCallsResponse(
            decisions=[
                pb.ToolCallDecision(
                    call_id=asked.call_id,
                    name=asked.name,
                    tool_id=decision.tool_id,
                    verdict=VERDICTS[decision.verdict.value],
                    reason=DENIALS[decision.denial.value] if decision.denial else None,
                )
                for asked, decision in zip(message.calls, answer.decisions, strict=True)
            ],
            generation=answer.generation,
            state_checked=answer.state_checked,
        )

    async def GetSession(self, message: pb.GetSessionRequest, call: CallContext) -> pb.GetSessionResponse:
        route, session_id = required_session(message)
        opened = await self._sessions.get(call.principal, route, session_id, deadline=call.deadline)
        if opened.found is not Found.PRESENT:
            return pb.GetSessionResponse()
        return pb.GetSessionResponse(
            tools=[
                pb.SessionTool(
                    tool_id=tool.tool_id,
                    pinned=tool.pinned,
                    first_seen_turn=tool.first_seen_turn,
                    last_called_turn=tool.called_turn,
                )
                for tool in opened.state.tools
            ],
            turn=opened.turn,
            revision=opened.revision,
            created_at=_timestamp(opened.created_ms),
            last_seen_at=_timestamp(opened.last_seen_ms),
            expires_at=_timestamp(opened.expires_ms),
        )

    async def EndSession(self, message: pb.EndSessionRequest, call: CallContext) -> pb.EndSessionResponse:
        route, session_id = required_session(message)
        await self._sessions.end(call.principal, route, session_id, deadline=call.deadline)
        return pb.EndSessionResponse()


def _timestamp(milliseconds: int) -> Timestamp:
    stamp = Timestamp()
    stamp.FromMilliseconds(milliseconds)
    return stamp
