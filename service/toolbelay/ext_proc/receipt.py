"""The receipt as one response header: counts and names of enums, never content."""

from __future__ import annotations

from toolbelay.application.turn import SelectAnswer

RECEIPT_HEADER = "x-toolbelay-receipt"


def receipt_value(answer: SelectAnswer) -> str:
    """`key=value` pairs joined by `;`, in a fixed order."""
    counts = answer.counts
    pairs: dict[str, object] = {
        "outcome": answer.outcome.value,
        "reason": answer.reason.value if answer.reason else "",
        "turn": answer.turn,
        "revision": answer.revision,
        "generation": answer.generation,
        "strategy": answer.strategy,
        "tools": len(answer.items),
        "retained": counts.retained,
        "added": counts.added,
        "pinned": counts.pinned,
        "evicted": counts.evicted,
        "removed_unauthorized": counts.removed_unauthorized,
        "removed_unavailable": counts.removed_unavailable,
        "removed_changed": counts.removed_changed,
        "hidden": counts.hidden,
        "caller_owned": answer.caller_owned,
        "offered_dropped": answer.offered_dropped,
        "called_ignored": answer.called_ignored,
        "replayed": int(answer.replayed),
        "stable_prefix": answer.stable_prefix,
        "tokens": answer.advertised_tokens,
        "catalog_tokens": answer.whole_catalog_tokens,
        "surface": answer.surface_digest.hex(),
    }
    return ";".join(f"{key}={value}" for key, value in pairs.items() if value != "")
