"""A local MCP server as a child process: messages are lines, bounded, and the whole process group ends with us."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import IO, Any, Final

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from toolbelay.imports.mcp_tap import MAX_MESSAGE, Tap

_GRACE: Final = 2.0  # seconds, for each of: end of input, SIGTERM, SIGKILL


@asynccontextmanager
async def stdio_transport(
    command: Sequence[str], env: Mapping[str, str], log: IO[bytes] | None, tap: Tap
) -> AsyncIterator[Any]:
    """A transport for the SDK's session. `env` comes on top of the SDK's safe defaults; `log` takes its stderr.

    Raises OSError where the command cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL if log is None else log,
        env={**get_default_environment(), **env},
        start_new_session=True,
        limit=MAX_MESSAGE,
    )
    to_session, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    to_server, from_session = anyio.create_memory_object_stream[SessionMessage](0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_read, process, to_session, tap)
        tasks.start_soon(_write, process, from_session)
        try:
            yield from_server, to_server
        finally:
            with anyio.CancelScope(shield=True):
                await _stop(process)
            tasks.cancel_scope.cancel()
            for stream in (to_session, from_server, to_server, from_session):
                stream.close()


async def _read(process: Process, inbox: ObjectSendStream[SessionMessage | Exception], tap: Tap) -> None:
    assert process.stdout
    async with inbox:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError, ConnectionError):
            while line := await _line(process.stdout, tap):
                if line.lstrip().startswith(b"{"):  # servers log to standard output too
                    await inbox.send(_message(tap.strip(line), tap))


async def _line(stream: asyncio.StreamReader, tap: Tap) -> bytes:
    try:
        return await stream.readline()
    except ValueError:
        tap.trouble = f"a message is more than {MAX_MESSAGE} bytes"
        return b""


def _message(line: bytes, tap: Tap) -> SessionMessage | Exception:
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
    except ValueError as error:
        tap.trouble = "a message is no JSON-RPC message"
        return error


async def _write(process: Process, outbox: ObjectReceiveStream[SessionMessage]) -> None:
    assert process.stdin
    async with outbox:
        with suppress(anyio.ClosedResourceError, ConnectionError):
            async for message in outbox:
                process.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
                await process.stdin.drain()


async def _stop(process: Process) -> None:
    """The protocol's order: end of input, then SIGTERM, then SIGKILL, to all that the command started."""
    assert process.stdin
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, number)
        # Not asyncio's timeout: in a task that was cancelled before, Python 3.11.2's lets the cancellation through.
        with anyio.move_on_after(_GRACE):
            await process.wait()
            break
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # children that outlived the command
