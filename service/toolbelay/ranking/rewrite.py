"""Strategy `rewrite`: one small call of a chat endpoint picks tools by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Rewriter(Protocol):
    """Picks names for a query."""

    async def pick(self, query: str, candidates: Sequence[tuple[str, str]], deadline: float) -> list[str]:
        """The names that a model picked, best first, unknown ones included (the caller drops them).

        `candidates`: (exposed name, text); `deadline`: loop time. Raises where the answer is late or no answer.
        """
