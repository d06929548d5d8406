"""What a tenant's tools look like to a model: rendered definitions, remembered, and their size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b

from toolbelay.catalog.formats import BYTES_PER_TOKEN, WireFormat, render
from toolbelay.catalog.model import Tool

DIGEST_SIZE = 8  # bytes


class Digester:
    """8 keyed bytes that stand for an item's bytes in one format.

    Keyed, because the digests of callers' own items are stored: without the key nobody can test a guess.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = blake2b(secret, digest_size=32, person=b"item-digest").digest()

    def __call__(self, definition: bytes, wire_format: WireFormat) -> bytes:
        person = wire_format.value.encode()[:16]
        return blake2b(definition, digest_size=DIGEST_SIZE, key=self._key, person=person).digest()


def estimate_tokens(size: int) -> int:
    """Tokens of `size` bytes of JSON: bytes / 4, rounded up."""
    return -(-size // BYTES_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class Rendered:
    """A definition in one format."""

    definition: bytes
    digest: bytes
    fingerprint_hex: str


class Surface:
    """The renderings of one snapshot. Filled on use; bounded by the catalog.

    A rendering depends on the stored tool alone, so a snapshot made by difference takes over those of
    the tools that did not change.
    """

    def __init__(
        self,
        digest: Digester,
        sizes: Mapping[WireFormat, int],
        rendered: dict[WireFormat, dict[str, Rendered]],
    ) -> None:
        self._digest = digest
        self._sizes = sizes
        self._rendered = rendered

    @classmethod
    def of(cls, tools: Iterable[Tool], digest: Digester) -> Surface:
        """The surface of a whole catalog."""
        held = list(tools)
        return cls(digest, {f: _size(held, f) for f in WireFormat}, {f: {} for f in WireFormat})

    def without(self, touched: Iterable[str], before: Mapping[str, Tool], after: Mapping[str, Tool]) -> Surface:
        """The surface after `touched` ids changed, were added or removed."""
        ids = set(touched)
        gone = [before[t] for t in ids if t in before]
        come = [after[t] for t in ids if t in after]
        sizes = {f: self._sizes[f] - _size(gone, f) + _size(come, f) for f in WireFormat}
        rendered: dict[WireFormat, dict[str, Rendered]] = {}
        for wire_format, held in self._rendered.items():
            kept = dict(held)
            for tool_id in ids:
                kept.pop(tool_id, None)
            rendered[wire_format] = kept
        return Surface(self._digest, sizes, rendered)

    def rendered(self, tool: Tool, wire_format: WireFormat) -> Rendered:
        """A tool of this snapshot in one format."""
        held = self._rendered[wire_format]
        found = held.get(tool.tool_id)
        if found is None:
            definition = render(tool, wire_format)
            found = Rendered(definition, self._digest(definition, wire_format), tool.fingerprint.hex())
            held[tool.tool_id] = found
        return found

    def whole_tokens(self, wire_format: WireFormat) -> int:
        """Estimated tokens of the whole catalog in one format."""
        return estimate_tokens(self._sizes[wire_format])


_PROBE = Tool("p/p", "p", "p", "p", b'"p"', b"{}", b"")
_BARE = Tool("p/p", "p", "p", "p", b'""', b"{}", b"")


def _size(tools: Iterable[Tool], wire_format: WireFormat) -> int:
    """Bytes of all renderings, by arithmetic: rendering 100,000 tools to measure them costs seconds."""
    described = len(render(_PROBE, wire_format)) - len(b'p"p"{}')
    bare = len(render(_BARE, wire_format)) - len(b"p{}")
    total = 0
    for tool in tools:
        total += len(tool.exposed_name) + len(tool.input_schema)
        total += described + len(tool.description) if tool.description != b'""' else bare
    return total
