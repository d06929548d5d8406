"""Routes: named selection configurations, as `routes.yaml` writes them.

The names of keys are those of the vLLM Semantic Router's `tool_selection` plugin where it has them, so
that its block can be pasted.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from toolbelay.ranking.options import RankingOptions

Strategy = Literal["keyword", "embedding", "hybrid", "rewrite", "static", "caller"]
ToolIds = Annotated[tuple[str, ...], Field(max_length=128)]

DEFAULT_ROUTE = "default"
MAX_ROUTE_NAME = 128


class _Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class StickyConfig(_Config):
    """How a session of the route keeps its tools."""

    enabled: bool = True  # False: every turn stateless
    max_tools: int = Field(default=16, ge=1, le=128)
    max_new_tools_per_turn: int = Field(default=2, ge=0, le=128)  # default: min(2, max_tools)
    pin_called_tools: bool = True
    when_full: Literal["keep", "replace_stale"] = "keep"
    stale_after_turns: int = Field(default=3, ge=1, le=1000)
    reseat_when_cold: bool = False
    prompt_cache_ttl_seconds: int = Field(default=300, ge=1, le=86_400)
    ttl_seconds: int = Field(default=3600, ge=1, le=2_592_000)


class Route(_Config):
    """One route with every default filled in."""

    enabled: bool = True  # accepted for the plugin's sake; False: every turn stateless, nothing ranked
    mode: Literal["add", "filter"] = "add"
    profile: Literal["agentic"] | None = None
    strategy: Strategy = "hybrid"
    top_k: int = Field(default=8, ge=1, le=128)
    similarity_threshold: float | None = None  # add mode; None = not set, reads as 0.0
    relevance_threshold: float | None = None  # filter mode; None = not set, reads as 0.0
    preserve_count: int = Field(default=0, ge=0, le=512)  # filter mode
    deadline_ms: int = Field(default=1000, ge=10, le=60_000)  # rewrite: 12000
    seed_tools: int = Field(default=8, ge=0, le=128)
    core_tools: ToolIds = ()
    required_tools: ToolIds = ()
    on_no_match: Literal["core", "all", "none"] = "all"
    caller_tools: Literal["keep", "rank", "drop"] = "keep"
    narrow: Literal["none", "allowed_tools"] = "none"
    sticky: StickyConfig = StickyConfig()
    ranking: RankingOptions = RankingOptions()

    @property
    def threshold(self) -> float | None:
        """The mode's threshold, `None` where the route sets none."""
        return self.relevance_threshold if self.mode == "filter" else self.similarity_threshold

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        return _with_defaults(data) if isinstance(data, dict) else data

    @model_validator(mode="after")
    def _consistent(self) -> Route:
        s = self.sticky
        if s.max_new_tools_per_turn > s.max_tools:
            raise ValueError("sticky.max_new_tools_per_turn must not exceed sticky.max_tools")
        if self.seed_tools > s.max_tools:
            raise ValueError("seed_tools must not exceed sticky.max_tools")
        if len(set(self.required_tools)) > s.max_tools:
            raise ValueError("required_tools are more than sticky.max_tools")
        for key in ("core_tools", "required_tools"):
            for tool_id in getattr(self, key):
                if "/" not in tool_id:
                    raise ValueError(f"{key}: {tool_id!r} is not a tool id of the form toolset/name")
        return self


# A preset for long tool-use sessions; measured in docs/selection-quality.md. Explicit keys win over it.
PROFILES: dict[str, dict[str, Any]] = {
    "agentic": {
        "strategy": "hybrid",
        "top_k": 64,  # whole toolsets are offered, and those that the session has count
        "seed_tools": 32,
        "sticky": {"max_tools": 64, "max_new_tools_per_turn": 28},
        "ranking": {"admission": "toolsets"},
    },
}


def _with_defaults(given: dict[str, Any]) -> dict[str, Any]:
    """The keys given, over the profile's, over the defaults that depend on other keys."""
    profile = PROFILES.get(str(given.get("profile")), {})
    merged = {**profile, **given}
    if isinstance(given.get("ranking"), dict):
        merged["ranking"] = {**profile.get("ranking", {}), **given["ranking"]}
    sticky = given.get("sticky", {})
    if not isinstance(sticky, dict):
        return merged
    sticky = {**profile.get("sticky", {}), **sticky}
    merged["sticky"] = sticky
    max_tools = sticky.get("max_tools", 16)
    top_k = merged.get("top_k", 8)
    if isinstance(max_tools, int) and isinstance(top_k, int):
        if sticky.get("max_new_tools_per_turn") is None or "max_new_tools_per_turn" not in given.get("sticky", {}):
            wanted = profile.get("sticky", {}).get("max_new_tools_per_turn", 2)
            sticky["max_new_tools_per_turn"] = min(wanted, max_tools)
        if given.get("seed_tools") is None:
            default = max_tools if merged.get("mode") == "filter" else profile.get("seed_tools", top_k)
            merged["seed_tools"] = min(default, max_tools)
    if given.get("on_no_match") is None:
        merged["on_no_match"] = "core" if merged.get("core_tools") else "all"
    if given.get("deadline_ms") is None:
        merged["deadline_ms"] = 12_000 if merged.get("strategy") == "rewrite" else 1000
    return merged


def parse_route(name: str, given: object) -> tuple[Route | None, list[str], list[str]]:
    """A route from its mapping: (route or None, faults, warnings). Faults name the key."""
    warnings: list[str] = []
    if given is None:
        given = {}
    if not isinstance(given, dict):
        return None, [f"route {name}: must be a mapping"], warnings
    given = dict(given)
    if given.pop("tools_db_path", None) is not None:
        warnings.append(f"route {name}: tools_db_path is ignored; the catalog is in the database")
    try:
        return Route.model_validate(given), [], warnings
    except ValidationError as error:
        faults = []
        for item in error.errors():
            path = ".".join(str(part) for part in item["loc"])
            message = item["msg"].removeprefix("Value error, ")
            if item["type"] == "extra_forbidden":
                message = "unknown key"
            faults.append(f"route {name}: {path + ': ' if path else ''}{message}")
        return None, faults, warnings
