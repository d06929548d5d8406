"""Vectors of a catalog's tools, each computed once per text and model."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

import numpy as np

from toolbelay.memo import Tally
from toolbelay.ranking.corpus import Corpus
from toolbelay.ranking.strategies.base import VectorRows
from toolbelay.ranking.vectors import Embedder, EmbeddingError, StaticEmbedder, Vectors

BATCH = 64  # texts per call of a remote embedder
# Rows per step of work in a thread: one call on all of them would keep the interpreter from the event loop.
STEP = 512


VECTORS = Tally()  # for metrics


class VectorTable:
    """Remembers the vectors of the last catalog given, by what was embedded.

    Static vectors embed a tool's own text (without its toolset's common words), so their key is that text;
    an endpoint's embed the definition's name and description, so their key is the fingerprint: a
    neighbour's change costs no call.
    """

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self._known: dict[bytes, Vectors] = {}
        VECTORS.count(self)

    def __len__(self) -> int:
        return len(self._known)

    def local_rows(self, corpus: Corpus) -> VectorRows | None:
        """All rows now, for embedders that are arithmetic; `None` for others. For threads."""
        if not isinstance(self._embedder, StaticEmbedder):
            return None
        keys = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in corpus.own_texts]
        missing = self._missing(keys)
        vectors = self._embedder.embed_now([corpus.own_texts[row] for row in missing])
        added = {keys[row]: vector for row, vector in zip(missing, vectors, strict=True)}
        self._keep(keys, added)
        return self._rows(keys)

    def held_rows(self, corpus: Corpus) -> VectorRows | None:
        """What is there without computing; `None` where nothing is. For embedders that are remote."""
        rows = self._rows([d.fingerprint for d in corpus.documents])
        return rows if rows.complete or rows.vectors.any() else None

    async def fetch(self, corpus: Corpus) -> VectorRows:
        """All rows, missing ones by the embedder in batches. Raises what it raises; batches done are kept."""
        keys = [d.fingerprint for d in corpus.documents]
        missing = self._missing(keys)
        for start in range(0, len(missing), BATCH):
            batch = missing[start : start + BATCH]
            vectors = await self._embedder.embed([corpus.documents[row].summary for row in batch])
            if len(vectors) != len(batch):
                raise EmbeddingError("the embedder answered with another number of vectors")
            self._known |= {keys[row]: vectors[n] for n, row in enumerate(batch)}
        self._keep(keys, {})
        return await asyncio.to_thread(self._rows, keys)

    def _missing(self, keys: Sequence[bytes]) -> list[int]:
        missing = [row for row, key in enumerate(keys) if key not in self._known]
        VECTORS.misses += len(missing)
        VECTORS.hits += len(keys) - len(missing)
        return missing

    def _keep(self, keys: Sequence[bytes], added: dict[bytes, Vectors]) -> None:
        known = self._known | added
        self._known = {key: known[key] for key in keys if key in known}

    def _rows(self, keys: Sequence[bytes]) -> VectorRows:
        known = self._known
        size = len(next(iter(known.values()), np.zeros(0, np.float32)))
        found = [known.get(key) for key in keys]
        usable = [v if v is not None and len(v) == size else None for v in found]
        # Column by column: the product with one query then streams, three times as fast at 20,000 tools.
        vectors = np.zeros((len(keys), size), np.float32, order="F")
        nothing = np.zeros(size, np.float32)
        for start in range(0, len(keys), STEP):
            step = [nothing if vector is None else vector for vector in usable[start : start + STEP]]
            vectors[start : start + STEP] = np.stack(step)
        complete = all(v is not None for v in usable)
        if complete:
            self._known = dict(zip(keys, vectors, strict=True))  # views of the one copy
        return VectorRows(self._embedder.model, vectors, complete)
