"""The keyed digest that recognizes a turn asked again (rule 9). Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from toolbelay.application.turn import SelectRequest
from toolbelay.sessions.port import TurnKey


def turn_key(secret: bytes, request: SelectRequest, offered_names: Iterable[str]) -> TurnKey | None:
    """The key over `turn_id` and the request's content, candidates apart; `None` without a turn_id."""
    if not request.turn_id:
        return None
    target, choice = request.target, request.choice
    content = _lengths_prefixed(
        [
            request.turn_id,
            request.query,
            *_counted(request.called_tools),
            *_counted(offered_names),
            choice.mode.value,
            *_counted(choice.names),
            str(choice.required),
            target.format.value,
            target.model,
            *_counted(sorted(target.capabilities)),
            str(target.max_tools),
            str(target.supports_tools),
        ]
    )
    return TurnKey(
        identity=_mac(secret, b"turn-id", request.turn_id.encode())[:8],
        content=_mac(secret, b"turn", content)[:16],
    )


def _counted(parts: Iterable[str]) -> list[str]:
    listed = list(parts)
    return [str(len(listed)), *listed]


def _lengths_prefixed(parts: Iterable[str]) -> bytes:
    out = bytearray()
    for part in parts:
        raw = part.encode()
        out += len(raw).to_bytes(4, "big") + raw
    return bytes(out)


def _mac(secret: bytes, purpose: bytes, data: bytes) -> bytes:
    return hmac.new(secret, purpose + b"\0" + data, hashlib.sha256).digest()
