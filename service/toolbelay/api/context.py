"""What a servicer's method is told about its call."""

from __future__ import annotations

from msgspec import Struct

from toolbelay.authority.principal import Principal


class CallContext(Struct, frozen=True, gc=False):
    """One authenticated call.

    `deadline`: `asyncio` loop time at which the client stops waiting; infinity when it set none.
    `method`: the RPC's name, such as "SelectTools".
    """

    principal: Principal
    deadline: float
    method: str
