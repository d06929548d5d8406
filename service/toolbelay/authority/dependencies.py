"""What a policy set's decisions can depend on, proven from its syntax tree.

A use that is not recognised counts as a use of everything: the answer may be too large, never too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from operator import attrgetter
from typing import Any, Literal

from cedarpy import pst

from toolbelay.authority.principal import Principal
from toolbelay.catalog.model import Tool

_HINTS = (
    ("readOnly", "read_only"),
    ("destructive", "destructive"),
    ("idempotent", "idempotent"),
    ("openWorld", "open_world"),
)
# Naming such an entity is comparing that attribute, by the way entities are made (entities.py).
_PLACES = {"User": ("principal", "subject"), "Role": ("principal", "roles"), "Toolset": ("resource", "toolset")}


Variable = Literal["principal", "resource", "context", "action"]
_NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What decides, beside the action.

    `whole`: variables used as values, so that anything of them may decide.
    `read`: attributes by variable whose value may decide in any way.
    `compared`: literals that a string is compared with, or whose membership in a set is asked, by variable
    and attribute: nothing else of that attribute decides. Named users, roles and toolsets are among them.
    `tools`: tool ids that are named.
    `isolated`: attributes or parents of tools are asked for by the tool's name, so a decision may only
    ever see the entities of its own request.
    """

    whole: frozenset[str] = frozenset()
    read: Mapping[str, frozenset[str]] = field(default_factory=dict)
    compared: Mapping[tuple[str, str], frozenset[str]] = field(default_factory=dict)
    tools: frozenset[str] = frozenset()
    isolated: bool = False

    @property
    def names_users(self) -> bool:
        """Whether a decision may depend on who the caller is beyond tenant, issuer, roles and scopes."""
        return self._reads("principal", "subject") or bool(self.compared.get(("principal", "subject")))

    @property
    def names_every_tool(self) -> bool:
        """Whether each tool, or each name, is a class of its own."""
        return self._reads("resource", "name")

    def principal_key(self, who: Principal) -> tuple[object, ...]:
        """Give equal keys only to principals whose every decision is equal. The tenant is always in it."""
        return (
            who.tenant,
            self._text("principal", "issuer", who.issuer),
            self._text("principal", "subject", who.subject),
            self._members("principal", "roles", who.roles),
            self._members("principal", "scopes", who.scopes),
        )

    def context_key(self, route: str, model: str, mode: str) -> tuple[str | None, ...]:
        """Give equal keys only to contexts whose every decision is equal."""
        return (
            self._text("context", "route", route),
            self._text("context", "model", model),
            self._text("context", "mode", mode),
        )

    def tool_classifier(self) -> Callable[[Tool], tuple[object, ...]]:
        """Give a function that gives equal keys only to tools whose every decision is equal: the tool's class."""
        # Resolved once, since it runs for every tool of a catalog: about 1 µs a tool.
        each, tools = "resource" in self.whole, self.tools
        toolsets, names = (self._literals("resource", attribute) for attribute in ("toolset", "name"))
        tags = self._literals("resource", "tags")
        hints = tuple(attrgetter(own) for attribute, own in _HINTS if self._reads("resource", attribute))

        def classify(tool: Tool) -> tuple[object, ...]:
            return (
                tool.tool_id if each or tool.tool_id in tools else None,
                tool.toolset if toolsets is None or tool.toolset in toolsets else None,
                tool.name if names is None or tool.name in names else None,
                tool.tags if tags is None else tool.tags & tags,
                *[read(tool.hints) for read in hints],
            )

        return classify

    def _reads(self, variable: Variable, attribute: str) -> bool:
        return variable in self.whole or attribute in self.read.get(variable, _NOTHING)

    def _literals(self, variable: Variable, attribute: str) -> frozenset[str] | None:
        """Give what the attribute is compared with; `None` = its whole value may decide."""
        if self._reads(variable, attribute):
            return None
        return self.compared.get((variable, attribute), _NOTHING)

    def _text(self, variable: Variable, attribute: str, value: str) -> str | None:
        literals = self._literals(variable, attribute)
        return value if literals is None or value in literals else None

    def _members(self, variable: Variable, attribute: str, values: frozenset[str]) -> frozenset[str]:
        literals = self._literals(variable, attribute)
        return values if literals is None else values & literals


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
        self._whole: set[str] = set()
        self._read: dict[str, set[str]] = {"principal": set(), "resource": set(), "context": set(), "action": set()}
        self._compared: dict[tuple[str, str], set[str]] = {}
        self._tools: set[str] = set()
        self._isolated = False

    def result(self) -> Dependencies:
        return Dependencies(
            whole=frozenset(self._whole),
            read={variable: frozenset(attributes) for variable, attributes in self._read.items()},
            compared={place: frozenset(literals) for place, literals in self._compared.items()},
            tools=frozenset(self._tools),
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
        """Whether this only compares something of a variable with what is named; notes the names."""
        match expr:
            case pst.BinaryOp(op="eq" | "not_eq", left=left, right=right):
                # Equal to a whole set is more than asking for its members: that stays a read.
                either = ((left, right), (right, left))
                return any(self._compares(one, other) for one, other in either if not isinstance(other, pst.Set))
            case pst.BinaryOp(op="in", left=pst.Var() as variable, right=literals):
                return self._compares(variable, literals)
            case pst.BinaryOp(op="contains", left=pst.Set() as literals, right=one):
                return self._compares(one, literals)
            case pst.BinaryOp(op="contains", left=pst.GetAttr() as many, right=pst.StringLit() as literal):
                return self._compares(many, literal)
            case pst.BinaryOp(
                op="contains_any" | "contains_all", left=pst.GetAttr() as many, right=pst.Set() as literals
            ):
                return self._compares(many, literals)
            case pst.Is(base=pst.Var(), in_expr=None):
                return True  # the schema fixes the type of every variable
            case pst.Is(base=variable, in_expr=literals) if literals is not None:
                return self._compares(variable, literals)
            case _:
                return False

    def _compares(self, subject: Any, literals: Any) -> bool:
        """Whether `subject` is a variable beside named entities, or an attribute of one beside strings."""
        members = literals.elements if isinstance(literals, pst.Set) else (literals,)
        if isinstance(subject, pst.Var):
            named = [member.value for member in members if isinstance(member, pst.EntityLit)]
            if len(named) == len(members):
                for uid in named:
                    self._name(uid)
                return True
        if isinstance(subject, pst.GetAttr) and isinstance(subject.base, pst.Var):
            texts = [member.value for member in members if isinstance(member, pst.StringLit)]
            if len(texts) == len(members):
                self._compared.setdefault((subject.base.name, subject.attr), set()).update(texts)
                return True
        return False

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
        place = _PLACES.get(uid.type.basename)
        if place is not None:
            self._compared.setdefault(place, set()).add(uid.id)
        elif uid.type.basename == "Tool":
            self._tools.add(uid.id)

    def _everything(self) -> None:
        self._whole |= {"principal", "resource", "context"}
        self._isolated = True


def _nodes(node: Any) -> Iterable[Any]:
    for part in fields(node):
        value = getattr(node, part.name)
        if isinstance(value, tuple):
            yield from (item for item in value if not isinstance(item, pst.Char | pst.Wildcard))
        elif is_dataclass(value) and not isinstance(value, pst.EntityType):
            yield value
