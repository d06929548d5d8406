"""Cedar policy files: parsed, checked against the schema, and named for people."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

import cedarpy
from cedarpy import pst

from toolbelay.storage.port import PolicyFile

MAX_POLICY_BYTES = 4 * 1024 * 1024  # of all files together
MAX_POLICIES = 10_000
MAX_ID_BYTES = 128

# Cedar has line comments and double-quoted strings; a `;` outside both ends a policy, and stands nowhere else.
_TOKEN = re.compile(r'//[^\n\r]*|"(?:\\.|[^"\\])*"|;|\s+|[^\s;"/]+|.', re.DOTALL)
_POSITION = re.compile(r"policy(\d+)")


@dataclass(frozen=True, slots=True)
class PolicyFault:
    """One reason to refuse a policy set. `line` counts from 1; `None` = the file as a whole."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        """Write `file:line: message`."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}"


class PolicyError(Exception):
    """A policy set is refused as a whole."""

    def __init__(self, faults: Sequence[PolicyFault]) -> None:
        super().__init__("; ".join(str(fault) for fault in faults[:20]))
        self.faults = tuple(faults)


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy. `name` is `file#@id`, or `file#N` (from 1) without an @id; unique in its set."""

    name: str
    file: str
    line: int
    node: pst.Template


@dataclass(frozen=True, slots=True)
class Statement:
    line: int
    text: str


@cache
def schema() -> cedarpy.Schema:
    """Give the schema that ships with the package."""
    text = resources.files("toolbelay.authority").joinpath("schema.cedarschema").read_text("utf-8")
    return cedarpy.Schema.from_str(text)


def validate_policies(files: Sequence[PolicyFile]) -> list[PolicyFault]:
    """Give every fault of a whole set: syntax, schema, templates, duplicate ids. Empty = the set is valid.

    An empty set is valid: nobody may use anything.
    """
    return _read(files)[1]


def parse_policies(files: Sequence[PolicyFile]) -> tuple[Policy, ...]:
    """Give the policies of a whole set, ordered by file name and place; raises PolicyError."""
    policies, faults = _read(files)
    if faults:
        raise PolicyError(faults)
    return tuple(policies)


def _read(files: Sequence[PolicyFile]) -> tuple[list[Policy], list[PolicyFault]]:
    policies: list[Policy] = []
    faults = _set_faults(files)
    if faults:
        return [], faults
    for file in sorted(files, key=lambda file: file.name):
        found, wrong = _read_file(file)
        policies += found
        faults += wrong
    faults += _duplicate_ids(policies)
    if len(policies) > MAX_POLICIES:
        faults.append(PolicyFault("", None, f"{len(policies)} policies, more than {MAX_POLICIES}"))
    return policies, faults


def _set_faults(files: Sequence[PolicyFile]) -> list[PolicyFault]:
    faults: list[PolicyFault] = []
    seen: set[str] = set()
    size = 0
    for file in files:
        if file.name in seen:
            faults.append(PolicyFault(file.name, None, "two policy files have this name"))
        seen.add(file.name)
        try:
            size += len(file.text.encode("utf-8"))
        except UnicodeEncodeError:
            faults.append(PolicyFault(file.name, None, "the file holds a lone surrogate"))
    if size > MAX_POLICY_BYTES:
        faults.append(PolicyFault("", None, f"the policy files have {size} bytes, more than {MAX_POLICY_BYTES}"))
    return faults


def _read_file(file: PolicyFile) -> tuple[list[Policy], list[PolicyFault]]:
    statements = list(split_statements(file.text))
    try:
        whole = cedarpy.PolicySet.from_str(file.text, release_gil=True)
    except ValueError as error:
        return [], _syntax_faults(file.name, statements, str(error))
    if len(whole) + len(whole.templates()) != len(statements):
        # Never seen; the parser's word counts, so a set that we would read otherwise is refused.
        return [], [PolicyFault(file.name, None, "the file cannot be split into its policies")]
    policies: list[Policy] = []
    faults: list[PolicyFault] = []
    for number, statement in enumerate(statements, start=1):
        try:
            node = _node(statement.text)
            policies.append(Policy(_name(file.name, number, node), file.name, statement.line, node))
        except ValueError as error:
            faults.append(PolicyFault(file.name, statement.line, str(error)))
    return policies, faults + _schema_faults(file, statements)


def _node(text: str) -> pst.Template:
    nodes = cedarpy.PolicySet.from_str(text).to_pst()
    if nodes.templates:
        raise ValueError("a template (?principal, ?resource) permits nothing here; write a policy")
    (node,) = nodes.static_policies.values()
    return node


def _name(file: str, number: int, node: pst.Template) -> str:
    given = node.annotations.get("id")
    if given is None:
        return f"{file}#{number}"
    if not given.strip() or given.isdigit() or not given.isprintable() or len(given.encode()) > MAX_ID_BYTES:
        raise ValueError(f"@id must be printable, not a number, and at most {MAX_ID_BYTES} bytes")
    return f"{file}#{given}"


def _duplicate_ids(policies: Sequence[Policy]) -> list[PolicyFault]:
    faults: list[PolicyFault] = []
    first: dict[str, Policy] = {}
    for policy in policies:
        given = policy.node.annotations.get("id")
        if given is None:
            continue
        earlier = first.setdefault(given, policy)
        if earlier is not policy:
            message = f'@id("{given}") is already at {earlier.file}:{earlier.line}'
            faults.append(PolicyFault(policy.file, policy.line, message))
    return faults


def _syntax_faults(file: str, statements: Sequence[Statement], message: str) -> list[PolicyFault]:
    faults = []
    for statement in statements:
        try:
            cedarpy.PolicySet.from_str(statement.text)
        except ValueError as error:
            faults.append(PolicyFault(file, statement.line, f"syntax: {error}"))
    return faults or [PolicyFault(file, None, f"syntax: {message}")]


def _schema_faults(file: PolicyFile, statements: Sequence[Statement]) -> list[PolicyFault]:
    result = cedarpy.validate_policies(file.text, schema(), release_gil=True)
    faults = []
    for error in result.errors:
        position = _POSITION.fullmatch(error.policy_id)
        line = statements[int(position[1])].line if position else None
        message = error.error.removeprefix(f"for policy `{error.policy_id}`, ")
        faults.append(PolicyFault(file.name, line, message))
    if not faults and not result.validation_passed:
        faults.append(PolicyFault(file.name, None, "the file does not fit the schema"))
    return faults


def split_statements(text: str) -> Iterator[Statement]:
    """Split Cedar text at the `;` that end policies; each piece carries the line of its first word."""
    line = 1
    begun: int | None = None
    start = 0
    for match in _TOKEN.finditer(text):
        piece = match[0]
        if begun is None and not piece.isspace() and not piece.startswith("//"):
            begun, start = line, match.start()
        if piece == ";" and begun is not None:
            yield Statement(begun, text[start : match.end()])
            begun = None
        line += piece.count("\n")
    if begun is not None:
        yield Statement(begun, text[start:])


def renamed(policy: Policy) -> pst.Template:
    """Give the policy's node under its name, so that Cedar's diagnostics speak of it by that name."""
    return replace(policy.node, id=policy.name)
