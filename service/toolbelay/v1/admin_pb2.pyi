from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class ApplyConfigRequest(_message.Message):
    __slots__ = ("header", "chunk", "end")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    header: ApplyHeader
    chunk: ApplyChunk
    end: ApplyEnd
    def __init__(self, header: _Optional[_Union[ApplyHeader, _Mapping]] = ..., chunk: _Optional[_Union[ApplyChunk, _Mapping]] = ..., end: _Optional[_Union[ApplyEnd, _Mapping]] = ...) -> None: ...

class ApplyHeader(_message.Message):
    __slots__ = ("dry_run", "prune", "expected_generation")
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    PRUNE_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_GENERATION_FIELD_NUMBER: _ClassVar[int]
    dry_run: bool
    prune: bool
    expected_generation: int
    def __init__(self, dry_run: _Optional[bool] = ..., prune: _Optional[bool] = ..., expected_generation: _Optional[int] = ...) -> None: ...

class ApplyChunk(_message.Message):
    __slots__ = ("kind", "name", "content")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[ApplyChunk.Kind]
        KIND_TOOLS: _ClassVar[ApplyChunk.Kind]
        KIND_POLICY: _ClassVar[ApplyChunk.Kind]
        KIND_ROUTES: _ClassVar[ApplyChunk.Kind]
    KIND_UNSPECIFIED: ApplyChunk.Kind
    KIND_TOOLS: ApplyChunk.Kind
    KIND_POLICY: ApplyChunk.Kind
    KIND_ROUTES: ApplyChunk.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    kind: ApplyChunk.Kind
    name: str
    content: bytes
    def __init__(self, kind: _Optional[_Union[ApplyChunk.Kind, str]] = ..., name: _Optional[str] = ..., content: _Optional[bytes] = ...) -> None: ...

class ApplyEnd(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ApplyConfigResponse(_message.Message):
    __slots__ = ("generation", "changed", "changes", "warnings")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    CHANGES_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    changed: bool
    changes: _containers.RepeatedCompositeFieldContainer[ConfigChange]
    warnings: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, generation: _Optional[int] = ..., changed: _Optional[bool] = ..., changes: _Optional[_Iterable[_Union[ConfigChange, _Mapping]]] = ..., warnings: _Optional[_Iterable[str]] = ...) -> None: ...

class ConfigChange(_message.Message):
    __slots__ = ("kind", "name", "action")
    class Action(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        ACTION_UNSPECIFIED: _ClassVar[ConfigChange.Action]
        ACTION_ADDED: _ClassVar[ConfigChange.Action]
        ACTION_CHANGED: _ClassVar[ConfigChange.Action]
        ACTION_REMOVED: _ClassVar[ConfigChange.Action]
    ACTION_UNSPECIFIED: ConfigChange.Action
    ACTION_ADDED: ConfigChange.Action
    ACTION_CHANGED: ConfigChange.Action
    ACTION_REMOVED: ConfigChange.Action
    KIND_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ACTION_FIELD_NUMBER: _ClassVar[int]
    kind: str
    name: str
    action: ConfigChange.Action
    def __init__(self, kind: _Optional[str] = ..., name: _Optional[str] = ..., action: _Optional[_Union[ConfigChange.Action, str]] = ...) -> None: ...

class GetConfigRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetConfigResponse(_message.Message):
    __slots__ = ("generation", "tool", "policy", "route")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    TOOL_FIELD_NUMBER: _ClassVar[int]
    POLICY_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    generation: int
    tool: ConfigTool
    policy: ConfigPolicy
    route: ConfigRoute
    def __init__(self, generation: _Optional[int] = ..., tool: _Optional[_Union[ConfigTool, _Mapping]] = ..., policy: _Optional[_Union[ConfigPolicy, _Mapping]] = ..., route: _Optional[_Union[ConfigRoute, _Mapping]] = ...) -> None: ...

class ConfigTool(_message.Message):
    __slots__ = ("tool_id", "exposed_name", "fingerprint", "definition")
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    EXPOSED_NAME_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    tool_id: str
    exposed_name: str
    fingerprint: str
    definition: bytes
    def __init__(self, tool_id: _Optional[str] = ..., exposed_name: _Optional[str] = ..., fingerprint: _Optional[str] = ..., definition: _Optional[bytes] = ...) -> None: ...

class ConfigPolicy(_message.Message):
    __slots__ = ("name", "text")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ...) -> None: ...

class ConfigRoute(_message.Message):
    __slots__ = ("name", "json")
    NAME_FIELD_NUMBER: _ClassVar[int]
    JSON_FIELD_NUMBER: _ClassVar[int]
    name: str
    json: str
    def __init__(self, name: _Optional[str] = ..., json: _Optional[str] = ...) -> None: ...

class ExplainDecisionRequest(_message.Message):
    __slots__ = ("subject", "issuer", "roles", "scopes", "tool_id", "route", "model")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    SCOPES_FIELD_NUMBER: _ClassVar[int]
    TOOL_ID_FIELD_NUMBER: _ClassVar[int]
    ROUTE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    subject: str
    issuer: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    scopes: _containers.RepeatedScalarFieldContainer[str]
    tool_id: str
    route: str
    model: str
    def __init__(self, subject: _Optional[str] = ..., issuer: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., scopes: _Optional[_Iterable[str]] = ..., tool_id: _Optional[str] = ..., route: _Optional[str] = ..., model: _Optional[str] = ...) -> None: ...

class ExplainDecisionResponse(_message.Message):
    __slots__ = ("in_catalog", "advertise", "call", "generation")
    IN_CATALOG_FIELD_NUMBER: _ClassVar[int]
    ADVERTISE_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    in_catalog: bool
    advertise: ActionDecision
    call: ActionDecision
    generation: int
    def __init__(self, in_catalog: _Optional[bool] = ..., advertise: _Optional[_Union[ActionDecision, _Mapping]] = ..., call: _Optional[_Union[ActionDecision, _Mapping]] = ..., generation: _Optional[int] = ...) -> None: ...

class ActionDecision(_message.Message):
    __slots__ = ("allowed", "policies", "errors")
    ALLOWED_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    allowed: bool
    policies: _containers.RepeatedScalarFieldContainer[str]
    errors: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, allowed: _Optional[bool] = ..., policies: _Optional[_Iterable[str]] = ..., errors: _Optional[_Iterable[str]] = ...) -> None: ...

class EndSessionsRequest(_message.Message):
    __slots__ = ("principal", "whole_tenant")
    PRINCIPAL_FIELD_NUMBER: _ClassVar[int]
    WHOLE_TENANT_FIELD_NUMBER: _ClassVar[int]
    principal: PrincipalRef
    whole_tenant: bool
    def __init__(self, principal: _Optional[_Union[PrincipalRef, _Mapping]] = ..., whole_tenant: _Optional[bool] = ...) -> None: ...

class PrincipalRef(_message.Message):
    __slots__ = ("issuer", "subject")
    ISSUER_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    issuer: str
    subject: str
    def __init__(self, issuer: _Optional[str] = ..., subject: _Optional[str] = ...) -> None: ...

class EndSessionsResponse(_message.Message):
    __slots__ = ("ended", "generation")
    ENDED_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    ended: int
    generation: int
    def __init__(self, ended: _Optional[int] = ..., generation: _Optional[int] = ...) -> None: ...
