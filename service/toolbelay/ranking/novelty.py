"""What tools would answer of a text that the tools at hand leave open. Pure.

That another toolset fits a text is a weak sign that the user turned to it: many fit a chatty text somewhat. That it
has words which no tool at hand has ("… and tweet it") is a strong one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from toolbelay.ranking.lexical import LexicalIndex, Scores
from toolbelay.ranking.query import QueryWords


class News(Struct, frozen=True, gc=False):
    """`words`, of each row: how many words of the text it has that no row at hand has, each as far as it has it.

    One word is a word that a single toolset has. `asked`: the words of the whole text, in the same measure.
    `known`: whether any tool has a word of the text.
    """

    words: Scores
    asked: float
    known: bool


def news(lexical: LexicalIndex, text: QueryWords, at_hand: npt.NDArray[np.bool_]) -> News:
    """`at_hand`: by row. A word that some of them have counts by how much more of it a row has."""
    found = np.zeros(lexical.size, np.float32)
    asked, known = 0.0, False
    for word, weight in text.weights.items():
        asked += weight * lexical.distinction(word)
        rows, weights = lexical.answers(text, word)
        if len(rows):
            known = True
            held = weights[at_hand[rows]]
            found[rows] += np.maximum(weights - (held.max() if len(held) else np.float32(0)), 0)
    return News(found, asked, known)
