"""All tools of an MCP server, page by page, through the protocol's own SDK."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.client.session import ClientSession
from mcp.shared.exceptions import MCPError

from toolbelay.imports.candidates import shown
from toolbelay.imports.mcp_tap import Tap

MAX_PAGES: Final = 500
_SHOWN: Final = 300
_CLIENT: Final = types.Implementation(name="toolbelay-import", version="1")


class ListingFailedError(Exception):
    """The server gave no whole listing; what it gave is not to be used."""


@dataclass(frozen=True, slots=True)
class Listed:
    """What a server calls itself ("" where it does not say), and each tool's exact bytes."""

    server: str
    items: tuple[bytes, ...] = field(repr=False)


async def list_tools(transport: AbstractAsyncContextManager[Any], tap: Tap, *, timeout: float) -> Listed:
    """Ask for every page. `timeout`: seconds for all of it. Raises ListingFailedError."""
    outcome: Listed | str = ""
    with anyio.move_on_after(timeout) as limit:
        try:
            async with (
                transport as (incoming, outgoing),
                ClientSession(incoming, outgoing, read_timeout_seconds=timeout, client_info=_CLIENT) as session,
            ):
                # Errors must not pass the task groups of the SDK, which would wrap them.
                outcome = await _outcome(session, tap)
        except OSError as error:
            outcome = error.strerror or str(error)
        except BaseExceptionGroup as group:
            if isinstance(outcome, str) and not outcome:
                outcome = tap.trouble or _first(group)
    if isinstance(outcome, Listed):
        return outcome
    if limit.cancelled_caught and not outcome:
        outcome = f"no whole list of tools within {timeout:g} s"
    because = f" ({tap.trouble})" if tap.trouble and tap.trouble not in outcome else ""
    raise ListingFailedError(shown(outcome + because)[:_SHOWN])


async def _outcome(session: ClientSession, tap: Tap) -> Listed | str:
    try:
        return await _list(session, tap)
    except MCPError as error:
        return f"the server says: {error}"
    except (ValueError, RuntimeError) as error:  # pydantic's ValidationError is a ValueError
        return f"the server's answer cannot be used: {str(error).splitlines()[0]}"


async def _list(session: ClientSession, tap: Tap) -> Listed:
    try:
        await session.initialize()
    except MCPError:
        await session.discover()  # a server without the handshake, of 2026-07-28 or later
    cursor: str | None = None
    seen: set[str] = set()
    for _ in range(MAX_PAGES):
        request = types.ListToolsRequest(params=types.PaginatedRequestParams(cursor=cursor))
        tap.open_page()
        page = await session.send_request(request, types.ListToolsResult)
        tap.close_page()
        cursor = page.next_cursor
        if cursor is None:
            return Listed(session.server_info.name if session.server_info else "", tuple(tap.items))
        if cursor in seen:
            raise ValueError("its pages go round: a cursor came twice")
        seen.add(cursor)
    raise ValueError(f"it has more than {MAX_PAGES} pages")


def _first(group: BaseExceptionGroup) -> str:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"
