"""What a tenant's tools look like to a model: rendered definitions, remembered, and their size."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from msgspec import Struct

from toolbelay.catalog.estimate import ByteEstimator, Estimator
from toolbelay.catalog.formats import WireFormat, render
from toolbelay.catalog.model import Tool
from toolbelay.memo import Tally

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


class Rendered(Struct, frozen=True, gc=False, cache_hash=True):
    """A tool as a model is shown it in one format.

    `tool_id`: "" of an item that is the caller's own. `fingerprint`: in hex, "" of one that is no plain function tool.
    """

    tool_id: str
    name: str
    fingerprint: str
    definition: bytes
    digest: bytes


RENDERINGS = Tally()  # for metrics


class Surface:
    """The renderings of one snapshot. Filled on use; bounded by the catalog.

    A rendering depends on the stored tool alone, so a snapshot made by difference takes over those of
    the tools that did not change.
    """

    def __init__(
        self,
        digest: Digester,
        estimator: Estimator,
        weights: Mapping[WireFormat, int],
        rendered: dict[WireFormat, dict[str, Rendered]],
    ) -> None:
        self._digest = digest
        self._estimator = estimator
        self._weights = weights
        self._rendered = rendered
        RENDERINGS.count(self)

    def __len__(self) -> int:
        return sum(map(len, self._rendered.values()))

    @classmethod
    def of(cls, tools: Iterable[Tool], digest: Digester, estimator: Estimator | None = None) -> Surface:
        """The surface of a whole catalog. `estimator`: bytes / 4 by default."""
        held, weigh = list(tools), estimator or ByteEstimator()
        weights = {f: weigh.catalog_weight(held, f) for f in WireFormat}
        return cls(digest, weigh, weights, {f: {} for f in WireFormat})

    def without(self, touched: Iterable[str], before: Mapping[str, Tool], after: Mapping[str, Tool]) -> Surface:
        """The surface after `touched` ids changed, were added or removed."""
        ids = set(touched)
        gone = [before[t] for t in ids if t in before]
        come = [after[t] for t in ids if t in after]
        weigh = self._estimator.catalog_weight
        weights = {f: self._weights[f] - weigh(gone, f) + weigh(come, f) for f in WireFormat}
        rendered: dict[WireFormat, dict[str, Rendered]] = {}
        for wire_format, held in self._rendered.items():
            kept = dict(held)
            for tool_id in ids:
                kept.pop(tool_id, None)
            rendered[wire_format] = kept
        return Surface(self._digest, self._estimator, weights, rendered)

    def rendered(self, tool: Tool, wire_format: WireFormat) -> Rendered:
        """A tool of this snapshot in one format."""
        held = self._rendered[wire_format]
        found = held.get(tool.tool_id)
        if found is not None:
            RENDERINGS.hits += 1
        else:
            RENDERINGS.misses += 1
            definition = render(tool, wire_format)
            digest = self._digest(definition, wire_format)
            found = Rendered(tool.tool_id, tool.exposed_name, tool.fingerprint.hex(), definition, digest)
            held[tool.tool_id] = found
        return found

    def whole_tokens(self, wire_format: WireFormat) -> int:
        """Estimated tokens of the whole catalog in one format."""
        return self._estimator.tokens(self._weights[wire_format])

    def advertised_tokens(self, definitions: Iterable[bytes]) -> int:
        """Estimated tokens of an answer's definitions."""
        return self._estimator.tokens(sum(map(self._estimator.weight, definitions)))
