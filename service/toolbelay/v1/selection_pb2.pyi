import datetime

from google.protobuf import timestamp_pb2 as _timestamp_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class WireFormat(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    WIRE_FORMAT_UNSPECIFIED: _ClassVar[WireFormat]
    WIRE_FORMAT_OPENAI_CHAT: _ClassVar[WireFormat]
    WIRE_FORMAT_OPENAI_RESPONSES: _ClassVar[WireFormat]
    WIRE_FORMAT_ANTHROPIC_MESSAGES: _ClassVar[WireFormat]
    WIRE_FORMAT_MCP: _ClassVar[WireFormat]

class Origin(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    ORIGIN_UNSPECIFIED: _ClassVar[Origin]
    ORIGIN_RETAINED: _ClassVar[Origin]
    ORIGIN_SEEDED: _ClassVar[Origin]
    ORIGIN_ADDED_RELEVANT: _ClassVar[Origin]
    ORIGIN_ADDED_CALLED: _ClassVar[Origin]
    ORIGIN_ADDED_CHANGED: _ClassVar[Origin]
    ORIGIN_REQUIRED: _ClassVar[Origin]
    ORIGIN_CORE: _ClassVar[Origin]
    ORIGIN_CALLER_OWNED: _ClassVar[Origin]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_SEEDED: _ClassVar[Outcome]
    OUTCOME_REUSED: _ClassVar[Outcome]
    OUTCOME_UPDATED: _ClassVar[Outcome]
    OUTCOME_RESET: _ClassVar[Outcome]
    OUTCOME_UNSEEDED: _ClassVar[Outcome]
    OUTCOME_STATELESS: _ClassVar[Outcome]

class Reason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REASON_UNSPECIFIED: _ClassVar[Reason]
    REASON_NO_MATCH: _ClassVar[Reason]
    REASON_NO_QUERY: _ClassVar[Reason]
    REASON_RANKER_FALLBACK: _ClassVar[Reason]
    REASON_COLD: _ClassVar[Reason]
    REASON_STATE_DAMAGED: _ClassVar[Reason]
    REASON_STATE_UNAVAILABLE: _ClassVar[Reason]
    REASON_STATE_CONFLICT: _ClassVar[Reason]
    REASON_NO_SESSION: _ClassVar[Reason]
    REASON_STICKY_DISABLED: _ClassVar[Reason]
    REASON_TARGET_WITHOUT_TOOLS: _ClassVar[Reason]
    REASON_TOOL_CHOICE_DROPPED: _ClassVar[Reason]
    REASON_SESSION_ENDED: _ClassVar[Reason]

class Verdict(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    VERDICT_UNSPECIFIED: _ClassVar[Verdict]
    VERDICT_ALLOWED: _ClassVar[Verdict]
    VERDICT_DENIED: _ClassVar[Verdict]
    VERDICT_CALLER_OWNED: _ClassVar[Verdict]

class DenialReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DENIAL_REASON_UNSPECIFIED: _ClassVar[DenialReason]
    DENIAL_REASON_NOT_ADVERTISED: _ClassVar[DenialReason]
    DENIAL_REASON_NOT_IN_CATALOG: _ClassVar[DenialReason]
    DENIAL_REASON_DEFINITION_CHANGED: _ClassVar[DenialReason]
    DENIAL_REASON_NOT_AUTHORIZED: _ClassVar[DenialReason]
WIRE_FORMAT_UNSPECIFIED: WireFormat
WIRE_FORMAT_OPENAI_CHAT: WireFormat
WIRE_FORMAT_OPENAI_RESPONSES: WireFormat
WIRE_FORMAT_ANTHROPIC_MESSAGES: WireFormat
WIRE_FORMAT_MCP: WireFormat
ORIGIN_UNSPECIFIED: Origin
ORIGIN_RETAINED: Origin
ORIGIN_SEEDED: Origin
ORIGIN_ADDED_RELEVANT: Origin
ORIGIN_ADDED_CALLED: Origin
ORIGIN_ADDED_CHANGED: Origin
ORIGIN_REQUIRED: Origin
ORIGIN_CORE: Origin
ORIGIN_CALLER_OWNED: Origin
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_SEEDED: Outcome
OUTCOME_REUSED: Outcome
OUTCOME_UPDATED: Outcome
OUTCOME_RESET: Outcome
OUTCOME_UNSEEDED: Outcome
OUTCOME_STATELESS: Outcome
REASON_UNSPECIFIED: Reason
REASON_NO_MATCH: Reason
REASON_NO_QUERY: Reason
REASON_RANKER_FALLBACK: Reason
REASON_COLD: Reason
REASON_STATE_DAMAGED: Reason
REASON_STATE_UNAVAILABLE: Reason
REASON_STATE_CONFLICT: Reason
REASON_NO_SESSION: Reason
REASON_STICKY_DISABLED: Reason
REASON_TARGET_WITHOUT_TOOLS: Reason
REASON_TOOL_CHOICE_DROPPED: Reason
REASON_SESSION_ENDED: Reason
VERDICT_UNSPECIFIED: Verdict
VERDICT_ALLOWED: Verdict
VERDICT_DENIED: Verdict
VERDICT_CALLER_OWNED: Verdict
DENIAL_REASON_UNSPECIFIED: DenialReason
DENIAL_REASON_NOT_ADVERTISED: DenialReason
DENIAL_REASON_NOT_IN_CATALOG: DenialReason
DENIAL_REASON_DEFINITION_CHANGED: DenialReason
DENIAL_REASON_NOT_AUTHORIZED: DenialReason

class SelectToolsRequest(_message.Message):
    __slots__ = ("route", "session_id", "turn_id", "query", "called_tools", "offered_tools", "candidates", "target", "tool_choice", "min_generation", "omit_definitions", "known_fingerprints")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    TURN_ID_FIELD_NUMBER: _ClassVar[int]
    QUERY_FIELD_NUMBER: _ClassVar[int]
    CALLED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    OFFERED_TOOLS_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    MIN_GENERATION_FIELD_NUMBER: _ClassVar[int]
    OMIT_DEFINITIONS_FIELD_NUMBER: _ClassVar[int]
    KNOWN_FINGERPRINTS_FIELD_NUMBER: _ClassVar[int]
    route: str
    session_id: str
    turn_id: str
    query: str
    called_tools: _containers.RepeatedScalarFieldContainer[str]
    offered_tools: _containers.RepeatedCompositeFieldContainer[OfferedTool]
    candidates: _containers.RepeatedCompositeFieldContainer[RankedCandidate]
    target: Target
    tool_choice: ToolChoice
    min_generation: int
    omit_definitions: bool
    known_fingerprints: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, route: _Optional[str] = ..., session_id: _Optional[str] = ..., turn_id: _Optional[str] = ..., query: _Optional[str] = ..., called_tools: _Optional[_Iterable[str]] = ..., offered_tools: _Optional[_Iterable[_Union[OfferedTool, _Mapping]]] = ..., candidates: _Optional[_Iterable[_Union[RankedCandidate, _Mapping]]] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., tool_choice: _Optional[_Union[ToolChoice, _Mapping]] = ..., min_generation: _Optional[int] = ..., omit_definitions: _Optional[bool] = ..., known_fingerprints: _Optional[_Iterable[str]] = ...) -> None: ...

class OfferedTool(_message.Message):
    __slots__ = ("definition",)
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    definition: bytes
    def __init__(self, definition: _Optional[bytes] = ...) -> None: ...

class RankedCandidate(_message.Message):
    __slots__ = ("tool_id", "score")
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    tool_id: str
    score: float
    def __init__(self, tool_id: _Optional[str] = ..., score: _Optional[float] = ...) -> None: ...

class Target(_message.Message):
    __slots__ = ("format", "model", "capabilities", "max_tools", "supports_tools")
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    CAPABILITIES_FIELD_NUMBER: _ClassVar[int]
    MAX_TOOLS_FIELD_NUMBER: _ClassVar[int]
    SUPPORTS_TOOLS_FIELD_NUMBER: _ClassVar[int]
    format: WireFormat
    model: str
    capabilities: _containers.RepeatedScalarFieldContainer[str]
    max_tools: int
    supports_tools: bool
    def __init__(self, format: _Optional[_Union[WireFormat, str]] = ..., model: _Optional[str] = ..., capabilities: _Optional[_Iterable[str]] = ..., max_tools: _Optional[int] = ..., supports_tools: _Optional[bool] = ...) -> None: ...

class ToolChoice(_message.Message):
    __slots__ = ("mode", "names", "required")
    class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        MODE_UNSPECIFIED: _ClassVar[ToolChoice.Mode]
        MODE_AUTO: _ClassVar[ToolChoice.Mode]
        MODE_NONE: _ClassVar[ToolChoice.Mode]
        MODE_REQUIRED: _ClassVar[ToolChoice.Mode]
        MODE_NAMED: _ClassVar[ToolChoice.Mode]
        MODE_ALLOWED: _ClassVar[ToolChoice.Mode]
    MODE_UNSPECIFIED: ToolChoice.Mode
    MODE_AUTO: ToolChoice.Mode
    MODE_NONE: ToolChoice.Mode
    MODE_REQUIRED: ToolChoice.Mode
    MODE_NAMED: ToolChoice.Mode
    MODE_ALLOWED: ToolChoice.Mode
    MODE_FIELD_NUMBER: _ClassVar[int]
    NAMES_FIELD_NUMBER: _ClassVar[int]
    REQUIRED_FIELD_NUMBER: _ClassVar[int]
    mode: ToolChoice.Mode
    names: _containers.RepeatedScalarFieldContainer[str]
    required: bool
    def __init__(self, mode: _Optional[_Union[ToolChoice.Mode, str]] = ..., names: _Optional[_Iterable[str]] = ..., required: _Optional[bool] = ...) -> None: ...

class SelectToolsResponse(_message.Message):
    __slots__ = ("tools", "tool_choice", "receipt", "stable_prefix")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TOOL_CHOICE_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    STABLE_PREFIX_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[SelectedTool]
    tool_choice: ToolChoice
    receipt: Receipt
    stable_prefix: int
    def __init__(self, tools: _Optional[_Iterable[_Union[SelectedTool, _Mapping]]] = ..., tool_choice: _Optional[_Union[ToolChoice, _Mapping]] = ..., receipt: _Optional[_Union[Receipt, _Mapping]] = ..., stable_prefix: _Optional[int] = ...) -> None: ...

class SelectedTool(_message.Message):
    __slots__ = ("tool_id", "name", "fingerprint", "definition", "origin", "pinned", "score")
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    tool_id: str
    name: str
    fingerprint: str
    definition: bytes
    origin: Origin
    pinned: bool
    score: float
    def __init__(self, tool_id: _Optional[str] = ..., name: _Optional[str] = ..., fingerprint: _Optional[str] = ..., definition: _Optional[bytes] = ..., origin: _Optional[_Union[Origin, str]] = ..., pinned: _Optional[bool] = ..., score: _Optional[float] = ...) -> None: ...

class Receipt(_message.Message):
    __slots__ = ("outcome", "reason", "retained", "added", "pinned", "evicted", "removed_unauthorized", "removed_unavailable", "removed_changed", "removed_incapable", "turn", "revision", "generation", "strategy", "estimate", "replayed", "hidden", "caller_owned", "called_ignored", "candidates_ignored", "offered_dropped", "surface_digest")
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RETAINED_FIELD_NUMBER: _ClassVar[int]
    ADDED_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    EVICTED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_UNAUTHORIZED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_UNAVAILABLE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_CHANGED_FIELD_NUMBER: _ClassVar[int]
    REMOVED_INCAPABLE_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    ESTIMATE_FIELD_NUMBER: _ClassVar[int]
    REPLAYED_FIELD_NUMBER: _ClassVar[int]
    HIDDEN_FIELD_NUMBER: _ClassVar[int]
    CALLER_OWNED_FIELD_NUMBER: _ClassVar[int]
    CALLED_IGNORED_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_IGNORED_FIELD_NUMBER: _ClassVar[int]
    OFFERED_DROPPED_FIELD_NUMBER: _ClassVar[int]
    SURFACE_DIGEST_FIELD_NUMBER: _ClassVar[int]
    outcome: Outcome
    reason: Reason
    retained: int
    added: int
    pinned: int
    evicted: int
    removed_unauthorized: int
    removed_unavailable: int
    removed_changed: int
    removed_incapable: int
    turn: int
    revision: int
    generation: int
    strategy: str
    estimate: TokenEstimate
    replayed: bool
    hidden: int
    caller_owned: int
    called_ignored: int
    candidates_ignored: int
    offered_dropped: int
    surface_digest: bytes
    def __init__(self, outcome: _Optional[_Union[Outcome, str]] = ..., reason: _Optional[_Union[Reason, str]] = ..., retained: _Optional[int] = ..., added: _Optional[int] = ..., pinned: _Optional[int] = ..., evicted: _Optional[int] = ..., removed_unauthorized: _Optional[int] = ..., removed_unavailable: _Optional[int] = ..., removed_changed: _Optional[int] = ..., removed_incapable: _Optional[int] = ..., turn: _Optional[int] = ..., revision: _Optional[int] = ..., generation: _Optional[int] = ..., strategy: _Optional[str] = ..., estimate: _Optional[_Union[TokenEstimate, _Mapping]] = ..., replayed: _Optional[bool] = ..., hidden: _Optional[int] = ..., caller_owned: _Optional[int] = ..., called_ignored: _Optional[int] = ..., candidates_ignored: _Optional[int] = ..., offered_dropped: _Optional[int] = ..., surface_digest: _Optional[bytes] = ...) -> None: ...

class TokenEstimate(_message.Message):
    __slots__ = ("advertised", "whole_catalog")
    ADVERTISED_FIELD_NUMBER: _ClassVar[int]
    WHOLE_CATALOG_FIELD_NUMBER: _ClassVar[int]
    advertised: int
    whole_catalog: int
    def __init__(self, advertised: _Optional[int] = ..., whole_catalog: _Optional[int] = ...) -> None: ...

class AuthorizeToolCallsRequest(_message.Message):
    __slots__ = ("route", "session_id", "calls", "target", "caller_tools")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    CALLS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    CALLER_TOOLS_FIELD_NUMBER: _ClassVar[int]
    route: str
    session_id: str
    calls: _containers.RepeatedCompositeFieldContainer[ToolCall]
    target: Target
    caller_tools: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, route: _Optional[str] = ..., session_id: _Optional[str] = ..., calls: _Optional[_Iterable[_Union[ToolCall, _Mapping]]] = ..., target: _Optional[_Union[Target, _Mapping]] = ..., caller_tools: _Optional[_Iterable[str]] = ...) -> None: ...

class ToolCall(_message.Message):
    __slots__ = ("call_id", "name")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    name: str
    def __init__(self, call_id: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class AuthorizeToolCallsResponse(_message.Message):
    __slots__ = ("decisions", "generation", "state_checked")
    DECISIONS_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    STATE_CHECKED_FIELD_NUMBER: _ClassVar[int]
    decisions: _containers.RepeatedCompositeFieldContainer[ToolCallDecision]
    generation: int
    state_checked: bool
    def __init__(self, decisions: _Optional[_Iterable[_Union[ToolCallDecision, _Mapping]]] = ..., generation: _Optional[int] = ..., state_checked: _Optional[bool] = ...) -> None: ...

class ToolCallDecision(_message.Message):
    __slots__ = ("call_id", "name", "tool_id", "verdict", "reason")
    CALL_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    VERDICT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    call_id: str
    name: str
    tool_id: str
    verdict: Verdict
    reason: DenialReason
    def __init__(self, call_id: _Optional[str] = ..., name: _Optional[str] = ..., tool_id: _Optional[str] = ..., verdict: _Optional[_Union[Verdict, str]] = ..., reason: _Optional[_Union[DenialReason, str]] = ...) -> None: ...

class GetSessionRequest(_message.Message):
    __slots__ = ("route", "session_id")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    route: str
    session_id: str
    def __init__(self, route: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class GetSessionResponse(_message.Message):
    __slots__ = ("tools", "turn", "revision", "created_at", "last_seen_at", "expires_at")
    TOOLS_FIELD_NUMBER: _ClassVar[int]
    TURN_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    LAST_SEEN_AT_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_AT_FIELD_NUMBER: _ClassVar[int]
    tools: _containers.RepeatedCompositeFieldContainer[SessionTool]
    turn: int
    revision: int
    created_at: _timestamp_pb2.Timestamp
    last_seen_at: _timestamp_pb2.Timestamp
    expires_at: _timestamp_pb2.Timestamp
    def __init__(self, tools: _Optional[_Iterable[_Union[SessionTool, _Mapping]]] = ..., turn: _Optional[int] = ..., revision: _Optional[int] = ..., created_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., last_seen_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ..., expires_at: _Optional[_Union[datetime.datetime, _timestamp_pb2.Timestamp, _Mapping]] = ...) -> None: ...

class SessionTool(_message.Message):
    __slots__ = ("tool_id", "pinned", "first_seen_turn", "last_called_turn")
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    PINNED_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEEN_TURN_FIELD_NUMBER: _ClassVar[int]
    LAST_CALLED_TURN_FIELD_NUMBER: _ClassVar[int]
    tool_id: str
    pinned: bool
    first_seen_turn: int
    last_called_turn: int
    def __init__(self, tool_id: _Optional[str] = ..., pinned: _Optional[bool] = ..., first_seen_turn: _Optional[int] = ..., last_called_turn: _Optional[int] = ...) -> None: ...

class EndSessionRequest(_message.Message):
    __slots__ = ("route", "session_id")
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    SESSION_ID_FIELD_NUMBER: _ClassVar[int]
    route: str
    session_id: str
    def __init__(self, route: _Optional[str] = ..., session_id: _Optional[str] = ...) -> None: ...

class EndSessionResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...
