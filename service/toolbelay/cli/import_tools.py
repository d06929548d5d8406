"""`toolbelay import`: tools of MCP servers and of request files into a configuration folder."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import re
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import click

from toolbelay.cli.exits import FAILED, REFUSED, UNAVAILABLE, USAGE, CommandError
from toolbelay.cli.options import json_option

if TYPE_CHECKING:
    from toolbelay.imports.candidates import Listing
    from toolbelay.imports.mcp_listing import Listed
    from toolbelay.imports.mcp_tap import Tap

F = TypeVar("F", bound=Callable[..., Any])
_TOOLSET: Final = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
_ODD: Final = re.compile(r"[^A-Za-z0-9._-]+", re.ASCII)
_LOG_LINES: Final = 5


@dataclass(frozen=True, slots=True)
class Writing:
    """Options of `writing_options`."""

    folder: Path
    accept_changes: bool
    accept_empty: bool
    dry_run: bool
    as_json: bool


def writing_options(function: F) -> F:
    """Where to write, and what needs a human's word."""
    for option in (
        json_option,
        click.option("--dry-run", is_flag=True, help="Show what would change, write nothing."),
        click.option("--accept-empty", is_flag=True, help="Believe an empty list: the toolset's tools go."),
        click.option("--accept-changes", is_flag=True, help="Take changed definitions; look at the diff first."),
        click.option(
            "--dir",
            "folder",
            metavar="DIR",
            type=click.Path(file_okay=False, path_type=Path),
            default=Path(),
            help="The folder that `toolbelay apply` takes; default: the current one.",
        ),
    ):
        function = option(function)
    return function


@click.group("import")
def import_tools() -> None:
    """Write tools/TOOLSET.jsonl in a configuration folder, from what a server or a file lists.

    Shows what is added, changed and removed. A changed definition is held back until --accept-changes;
    a bad one is left out with the reason. Nothing is in force before `toolbelay apply`.

    \b
    Exit code 6: imported in part; something was held back or left out.
    """  # noqa: D301 - click wants the character


@import_tools.command("mcp")
@click.option("--toolset", metavar="NAME", help="Default: what the server calls itself, for a new file.")
@click.option("--url", metavar="URL", help="A server over streamable HTTP, instead of COMMAND.")
@click.option("--env", "env", multiple=True, metavar="NAME", help="Pass this variable on to COMMAND; repeatable.")
@click.option("--token-env", metavar="NAME", help="With --url: the variable that holds a bearer token.")
@click.option("--timeout", type=click.FloatRange(1, 600), default=60.0, help="Seconds for all of it; default 60.")
@writing_options
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
def import_mcp(
    *,
    toolset: str | None,
    url: str | None,
    env: tuple[str, ...],
    token_env: str | None,
    timeout: float,
    command: tuple[str, ...],
    **writing: Any,
) -> None:
    """List an MCP server's tools and import them.

    COMMAND gets a minimal environment (PATH, HOME and their like) and what --env names.

    \b
    Examples:
      toolbelay import mcp --dir config -- npx -y @modelcontextprotocol/server-everything
      toolbelay import mcp --toolset github --env GITHUB_TOKEN -- github-mcp-server stdio
      toolbelay import mcp --toolset docs --url https://mcp.example.com/mcp --token-env DOCS_TOKEN
    """  # noqa: D301 - click wants the character
    if bool(url) == bool(command):
        raise CommandError("give either --url URL or -- COMMAND…", code=USAGE)
    if toolset:
        _check_toolset(toolset)
    listed = _listed(url, command, env, token_env, timeout)
    from toolbelay.imports.candidates import Shape

    options = Writing(**writing)
    _finish(toolset or _named_by_server(listed.server, options.folder), listed.items, Shape.MCP, options)


@import_tools.command("openai")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--toolset", metavar="NAME", help="Default: FILE's name without its ending.")
@writing_options
def import_openai(*, file: Path, toolset: str | None, **writing: Any) -> None:
    """Import function tools from FILE: a request of OpenAI's (Chat or Responses), or its array of tools.

    \b
    Example:
      toolbelay import openai request.json --toolset crm --dir config
    """  # noqa: D301 - click wants the character
    _import_file(file, toolset, "openai", Writing(**writing))


@import_tools.command("anthropic")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--toolset", metavar="NAME", help="Default: FILE's name without its ending.")
@writing_options
def import_anthropic(*, file: Path, toolset: str | None, **writing: Any) -> None:
    """Import tools from FILE: a Messages request of Anthropic's, or its array of tools.

    \b
    Example:
      toolbelay import anthropic request.json --toolset crm --dir config
    """  # noqa: D301 - click wants the character
    _import_file(file, toolset, "anthropic", Writing(**writing))


def _import_file(file: Path, toolset: str | None, shape: str, writing: Writing) -> None:
    from toolbelay.catalog.raw_json import JsonTextError
    from toolbelay.imports.candidates import Shape
    from toolbelay.imports.listed_file import read_listed_file

    name = _check_toolset(toolset or _ODD.sub("-", file.stem)[:64])
    try:
        items = read_listed_file(file)
    except JsonTextError as error:
        raise CommandError(f"{file}: {error}", code=REFUSED) from None
    _finish(name, items, Shape(shape), writing)


def _finish(toolset: str, items: Sequence[bytes], shape: Any, writing: Writing) -> None:
    from toolbelay.cli.import_report import conclude, report
    from toolbelay.imports.candidates import read_listing
    from toolbelay.imports.difference import plan_import
    from toolbelay.imports.tools_file import FileChangedError, read_tools_file, replace_tools_file

    file = read_tools_file(writing.folder, toolset)
    listing: Listing = read_listing(toolset, items, shape)
    plan = plan_import(file.lines, listing, accept_changes=writing.accept_changes, accept_empty=writing.accept_empty)
    written = plan.changes_file and not writing.dry_run
    if written:
        try:
            replace_tools_file(file, plan.lines)
        except FileChangedError:
            raise CommandError(f"{file.path} was written by somebody else meanwhile; run this again") from None
    report(plan, listing, file.path, as_json=writing.as_json, written=written)
    conclude(plan)


def _listed(
    url: str | None, command: tuple[str, ...], env: tuple[str, ...], token_env: str | None, timeout: float
) -> Listed:
    try:
        from toolbelay.imports.mcp_listing import ListingFailedError, list_tools
        from toolbelay.imports.mcp_tap import Tap
    except ModuleNotFoundError as error:
        message = f"this needs the module {error.name}: pip install 'toolbelay[mcp]'"
        raise CommandError(message, code=FAILED) from None
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # what went wrong is told in one line below
    tap = Tap()
    with tempfile.TemporaryFile() as log:
        transport = _http(url, token_env, timeout, tap) if url else _stdio(command, env, log, tap)
        try:
            return asyncio.run(list_tools(transport, tap, timeout=timeout))
        except ListingFailedError as error:
            raise CommandError(f"{error}; nothing was imported", *_last_lines(log), code=UNAVAILABLE) from None


def _stdio(
    command: tuple[str, ...], env: tuple[str, ...], log: IO[bytes], tap: Tap
) -> AbstractAsyncContextManager[Any]:
    from toolbelay.imports.mcp_stdio import stdio_transport

    return stdio_transport(command, {name: _variable(name) for name in env}, log, tap)


def _http(url: str, token_env: str | None, timeout: float, tap: Tap) -> AbstractAsyncContextManager[Any]:
    from toolbelay.imports.mcp_http import http_transport

    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandError("--url must be an http or https address", code=USAGE)
    headers: dict[str, str] = {}
    if token_env:
        if parts.scheme == "http" and not _is_loopback(parts.hostname):
            raise CommandError("a token goes to https or to this machine only", code=USAGE)
        headers["authorization"] = f"Bearer {_variable(token_env)}"
    return http_transport(url, headers, timeout, tap)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise CommandError(f"the variable {name} is not set", code=USAGE)
    return value


def _last_lines(log: IO[bytes]) -> list[str]:
    """The end of what the server wrote to its standard error."""
    from toolbelay.imports.candidates import shown

    log.seek(max(0, log.seek(0, os.SEEK_END) - 4096))
    lines = log.read().decode("utf-8", "replace").splitlines()
    return [f"server: {shown(line)[:200]}" for line in lines if line.strip()][-_LOG_LINES:]


def _named_by_server(server: str, folder: Path) -> str:
    """A new toolset may have its server's name; a file that is there is named by the operator, not by a server."""
    name = _ODD.sub("-", server).strip("-.")[:64]
    if not name:
        raise CommandError("the server does not say its name; give --toolset NAME", code=USAGE)
    if (folder / "tools" / f"{name}.jsonl").exists():
        raise CommandError(
            f"the server calls itself {name!r} and tools/{name}.jsonl is there; give --toolset {name} if it came from it",
            code=REFUSED,
        )
    return _check_toolset(name)


def _check_toolset(name: str) -> str:
    from toolbelay.catalog.definitions import RESERVED_TOOLSET

    if not _TOOLSET.fullmatch(name) or name.startswith(".") or name == RESERVED_TOOLSET:
        raise CommandError(
            f"{name!r} is no toolset name: 1 to 64 of A-Z a-z 0-9 . _ -, not first a dot, not {RESERVED_TOOLSET!r};"
            " give --toolset NAME",
            code=USAGE,
        )
    return name
