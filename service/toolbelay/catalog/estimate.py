"""How many tokens a definition costs: bytes / 4, or counted by a tokenizer that the settings name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

from toolbelay.catalog.formats import BYTES_PER_TOKEN, WireFormat, render
from toolbelay.catalog.model import Tool
from toolbelay.memo import BytesMemo

_MEMO_ENTRIES: Final = 65_536
_MEMO_BYTES: Final = 64 * 1024 * 1024


class Estimator(Protocol):
    """Estimates in weights that add up; `tokens` turns a sum of weights into tokens."""

    def weight(self, definition: bytes) -> int:
        """The weight of one definition."""

    def catalog_weight(self, tools: Iterable[Tool], wire_format: WireFormat) -> int:
        """The weight of all renderings together. May take long for a tokenizer: run it off the event loop."""

    def tokens(self, weight: int) -> int:
        """Tokens of a sum of weights."""


class ByteEstimator:
    """Bytes / 4, rounded up. Providers' tokenizers differ, and not all are public."""

    def weight(self, definition: bytes) -> int:
        return len(definition)

    def catalog_weight(self, tools: Iterable[Tool], wire_format: WireFormat) -> int:
        """By arithmetic: rendering 100,000 tools to measure them costs seconds."""
        described = len(render(_DESCRIBED, wire_format)) - len(b'p"p"{}')
        bare = len(render(_BARE, wire_format)) - len(b"p{}")
        total = 0
        for tool in tools:
            total += len(tool.exposed_name) + len(tool.input_schema)
            total += described + len(tool.description) if tool.description != b'""' else bare
        return total

    def tokens(self, weight: int) -> int:
        return -(-weight // BYTES_PER_TOKEN)


_DESCRIBED = Tool("p/p", "p", "p", "p", b'"p"', b"{}", b"")
_BARE = Tool("p/p", "p", "p", "p", b'""', b"{}", b"")


class TokenizerEstimator:
    """Tokens counted by a tokenizer; a definition is counted once and remembered by its bytes."""

    def __init__(self, count: Callable[[str], int]) -> None:
        self._count = count
        self._memo: BytesMemo[int] = BytesMemo(max_entries=_MEMO_ENTRIES, max_bytes=_MEMO_BYTES)

    @classmethod
    def from_file(cls, path: Path) -> TokenizerEstimator:
        """From a `tokenizer.json` of Hugging Face's tokenizers. Raises ValueError for a file that is none."""
        from tokenizers import Tokenizer

        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # noqa: BLE001 - the library raises nothing more special
            raise ValueError(f"TOKENIZER_FILE {path} is not a tokenizer.json: {error}") from None
        tokenizer.no_padding()
        tokenizer.no_truncation()
        return cls(lambda text: len(tokenizer.encode(text, add_special_tokens=False).ids))

    def weight(self, definition: bytes) -> int:
        known = self._memo.get(definition)
        if known is None:
            known = self._count(definition.decode("utf-8", "replace"))
            self._memo.put(definition, known)
        return known

    def catalog_weight(self, tools: Iterable[Tool], wire_format: WireFormat) -> int:
        return sum(self.weight(render(tool, wire_format)) for tool in tools)

    def tokens(self, weight: int) -> int:
        return weight
