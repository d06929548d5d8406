"""What a policy set's decisions can depend on, proven from its syntax tree.

A use that is not recognised counts as a use of everything: the answer may be too large, never too small.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from cedarpy import pst

from toolbelay.authority.principal import Principal
from toolbelay.catalog.model import Tool

_HINTS = (
    ("readOnly", "read_only"),
    ("destructive", "destructive"),
    ("idempotent", "idempotent"),
    ("openWorld", "open_world"),
)


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What decides, beside the action.

    `users`, `roles`, `toolsets`, `tools`: ids of the entities that the set names.
    `principal`, `resource`, `context`: attributes that it reads.
    `whole_principal`, `whole_resource`, `whole_context`: used as values, so anything may decide.
    `isolated`: it asks for attributes or parents of tools by name, so a decision may only ever see the
    entities of its own request.
    """

    users: frozenset[str] = frozenset()
    roles: frozenset[str] = frozenset()
    toolsets: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    principal: frozenset[str] = frozenset()
    resource: frozenset[str] = frozenset()
    context: frozenset[str] = frozenset()
    whole_principal: bool = False
    whole_resource: bool = False
    whole_context: bool = False
    isolated: bool = False

    @property
    def names_users(self) -> bool:
        """Whether a decision may depend on who the caller is beyond tenant, roles and scopes."""
        return bool(self.users) or self.whole_principal or not self.principal.isdisjoint({"subject", "issuer"})

    def principal_key(self, who: Principal) -> tuple[object, ...]:
        """Give equal keys only to principals whose every decision is equal. The tenant is always in it."""
        if self.whole_principal:
            return who.tenant, who.issuer, who.subject, who.roles, who.scopes
        by_name = "subject" in self.principal or who.subject in self.users
        return (
            who.tenant,
            who.issuer if "issuer" in self.principal else None,
            who.subject if by_name else None,
            who.roles if "roles" in self.principal else who.roles & self.roles,
            who.scopes if "scopes" in self.principal else None,
        )

    def context_key(self, route: str, model: str, mode: str) -> tuple[str | None, ...]:
        """Give equal keys only to contexts whose every decision is equal."""
        whole = self.whole_context
        return (
            route if whole or "route" in self.context else None,
            model if whole or "model" in self.context else None,
            mode if whole or "mode" in self.context else None,
        )

    @property
    def names_every_tool(self) -> bool:
        """Whether each tool is a class of its own, or each name."""
        return self.whole_resource or "name" in self.resource

    def tool_key(self, tool: Tool) -> tuple[object, ...]:
        """Give equal keys only to tools whose every decision is equal: the tool's class."""
        if self.whole_resource:
            return tool.tool_id, tool.toolset, tool.name, tool.tags, tool.hints
        read = self.resource
        hints = tool.hints
        by_toolset = "toolset" in read or tool.toolset in self.toolsets
        return (
            tool.tool_id if tool.tool_id in self.tools else None,
            tool.toolset if by_toolset else None,
            tool.name if "name" in read else None,
            tool.tags if "tags" in read else None,
            tuple(getattr(hints, field) for attribute, field in _HINTS if attribute in read),
        )


def analyse(policies: Iterable[pst.Template]) -> Dependencies:
    """Walk a policy set."""
    walk = _Walk()
    for policy in policies:
        for scope in (policy.principal, policy.resource):
            walk.scope(scope)
        for clause in policy.clauses:
            walk.expression(clause.expr)
    return walk.result()


class _Walk:
    def __init__(self) -> None:
        self._entities: dict[str, set[str]] = {"User": set(), "Role": set(), "Toolset": set(), "Tool": set()}
        self._read: dict[str, set[str]] = {"principal": set(), "resource": set(), "context": set(), "action": set()}
        self._whole: set[str] = set()
        self._isolated = False

    def result(self) -> Dependencies:
        return Dependencies(
            users=frozenset(self._entities["User"]),
            roles=frozenset(self._entities["Role"]),
            toolsets=frozenset(self._entities["Toolset"]),
            tools=frozenset(self._entities["Tool"]),
            principal=frozenset(self._read["principal"]),
            resource=frozenset(self._read["resource"]),
            context=frozenset(self._read["context"]),
            whole_principal="principal" in self._whole,
            whole_resource="resource" in self._whole,
            whole_context="context" in self._whole,
            isolated=self._isolated,
        )

    def scope(self, scope: pst.PrincipalOrResourceConstraint) -> None:
        match scope:
            case pst.ScopeAny() | pst.ScopeIs():
                pass
            case (
                pst.ScopeEq(entity=pst.EntityUid() as uid)
                | pst.ScopeIn(entity=pst.EntityUid() as uid)
                | pst.ScopeIsIn(entity=pst.EntityUid() as uid)
            ):
                self._name(uid)
            case _:
                self._everything()

    def expression(self, expr: pst.Expr) -> None:
        """Visit iteratively: the depth of an expression is the author's to choose."""
        stack: list[Any] = [expr]
        while stack:
            stack.extend(self._visit(stack.pop()))

    def _visit(self, expr: Any) -> Iterable[Any]:
        """Note one node, and give the children that are still to be visited."""
        match expr:
            case pst.Var(name=name):
                self._whole.add(name)  # a bare use; the recognised uses never come here
            case pst.EntityLit(value=uid):
                self._name(uid)
                # Not beside ==, in or contains: it may be dereferenced, and other tools of a batch would answer.
                self._isolated |= uid.type.basename == "Tool"
            case pst.GetAttr(base=base, attr=attr):
                return self._attributes(base, (attr,))
            case pst.HasAttr(base=base, attrs=attrs):
                return self._attributes(base, attrs)
            case pst.BinaryOp() | pst.Is() if self._comparison(expr):
                pass
            case _:
                return self._children(expr)
        return ()

    def _comparison(self, expr: Any) -> bool:
        """Whether this only compares a variable's own uid, parents or type with what is named; notes the names."""
        match expr:
            case pst.BinaryOp(op="eq" | "not_eq", left=left, right=right):
                return self._compared(left, right) or self._compared(right, left)
            case pst.BinaryOp(op="in", left=variable, right=literals):
                return self._compared(variable, literals)
            case pst.BinaryOp(op="contains", left=pst.Set() as literals, right=variable):
                return self._compared(variable, literals)
            case pst.Is(base=pst.Var(), in_expr=None):
                return True  # the schema fixes the type of every variable
            case pst.Is(base=variable, in_expr=literals) if literals is not None:
                return self._compared(variable, literals)
            case _:
                return False

    def _compared(self, variable: Any, literals: Any) -> bool:
        if not isinstance(variable, pst.Var):
            return False
        members = literals.elements if isinstance(literals, pst.Set) else (literals,)
        named = [member.value for member in members if isinstance(member, pst.EntityLit)]
        if len(named) < len(members):
            return False
        for uid in named:
            self._name(uid)
        return True

    def _attributes(self, base: Any, attrs: tuple[str, ...]) -> Iterable[Any]:
        if isinstance(base, pst.Var):
            self._read[base.name].add(attrs[0])
            return ()
        # The base may turn out to be the principal or the resource.
        for read in self._read.values():
            read.update(attrs)
        return (base,)

    def _children(self, node: Any) -> Iterable[Any]:
        if isinstance(node, pst.BoolLit | pst.LongLit | pst.StringLit):
            return ()
        if isinstance(node, pst.Record):
            return tuple(node.fields.values())
        known = pst.UnaryOp | pst.BinaryOp | pst.Like | pst.IfThenElse | pst.Set | pst.Is
        if not isinstance(node, known):
            self._everything()
            return ()
        return tuple(_nodes(node))

    def _name(self, uid: pst.EntityUid) -> None:
        self._entities.setdefault(uid.type.basename, set()).add(uid.id)

    def _everything(self) -> None:
        self._whole |= {"principal", "resource", "context"}
        self._isolated = True


def _nodes(node: Any) -> Iterable[Any]:
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, tuple):
            yield from (item for item in value if not isinstance(item, pst.Char | pst.Wildcard))
        elif is_dataclass(value) and not isinstance(value, pst.EntityType):
            yield value
