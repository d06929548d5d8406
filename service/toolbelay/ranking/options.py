"""Options of ranking that a route may set."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, field_validator

from toolbelay.ranking.synonyms import parse_rule

Weight = Annotated[float, Field(ge=0.0, le=10.0, allow_inf_nan=False)]
Word = Annotated[str, StringConstraints(min_length=1, max_length=64)]
Rule = Annotated[str, StringConstraints(min_length=1, max_length=512)]


class RankingOptions(BaseModel):
    """The `ranking:` block of a route. Weights are relative to a tool's own relevance, which weighs 1.

    What they do, and how they were measured: docs/selection-quality.md.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Words.
    stop_words: tuple[Word, ...] = Field(default=(), max_length=1024)  # beside the built-in ones
    synonyms: tuple[Rule, ...] = Field(default=(), max_length=1024)  # "a, b, c" both ways; "a => b, c" one way
    default_synonyms: bool = True  # the curated table
    # Fusion (strategy hybrid): relevance = keyword share + vector_weight x cosine.
    vector_weight: Weight = 0.3
    # Priors of a session's turns; 0 switches one off. A stateless selection never uses them.
    toolset_weight: Weight = 0.6  # toolsets that gather many hits
    called_weight: Weight = 0.6  # toolsets of the tools called so far
    supply_weight: Weight = 2.0  # tools whose name says what a hit of their toolset takes as a parameter
    news_weight: Weight = 0.2  # tools with words of the text that no tool of the session has, by word
    # Admission: `each` offers the best tools one by one; `toolsets` brings whole toolsets and then keeps still.
    admission: Literal["each", "toolsets"] = "each"
    whole_toolset: int = Field(default=28, ge=1, le=128)  # tools of the leading toolset that come together
    part_toolset: int = Field(default=10, ge=1, le=128)  # tools of a further toolset that come together

    @field_validator("synonyms")
    @classmethod
    def _rules_say_something(cls, rules: tuple[str, ...]) -> tuple[str, ...]:
        for rule in rules:
            parse_rule(rule)
        return rules
