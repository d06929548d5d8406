"""What tools would answer of a text that the tools at hand leave open. Pure.

That another toolset fits a text is a weak sign that the user turned to it: many fit a chatty text somewhat. That it
has words which no tool at hand has ("… and tweet it") is a strong one.
"""

from __future__ import annotations

from itertools import accumulate

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
    asked = 0.0
    found = []
    for word, weight in text.weights.items():
        asked += weight * lexical.distinction(word)
        answers = lexical.answers(text, word)
        if len(answers[0]):
            found.append(answers)
    if not found:
        return News(np.zeros(lexical.size, np.float32), asked, known=False)
    # All words at once, each a stretch of one array.
    rows = np.concatenate([rows for rows, _ in found])
    weights = np.concatenate([weights for _, weights in found])
    sizes = [len(rows) for rows, _ in found]
    held = np.maximum.reduceat(weights * at_hand[rows], [0, *accumulate(sizes[:-1])])
    weights -= held.repeat(sizes)
    np.maximum(weights, 0, out=weights)
    return News(np.bincount(rows, weights, lexical.size).astype(np.float32), asked, known=True)
