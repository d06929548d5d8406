"""Entry point: names of the commands, and the funnel that turns every failure into one line."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import click

from toolbelay.cli.exits import EXIT_CODES, INTERRUPTED, OK, REFUSED, UNAVAILABLE, UNCONFIRMED, CommandError

if TYPE_CHECKING:
    from toolbelay.errors import ToolbelayError

# name: (module under toolbelay.cli, attribute, short help shown without importing it)
COMMANDS: Final[dict[str, tuple[str, str, str]]] = {
    "serve": ("serve", "serve", "Run the service; --dev brings its own Valkey, database and keys."),
    "db": ("db", "db", "Migrate and check the database."),
    "apply": ("apply", "apply", "Put a folder of tools, policies and routes into force."),
    "token": ("token", "token", "Mint a development token."),
    "select": ("select", "select", "Ask the service for the tools of one turn."),
    "session": ("session", "session", "Show or end one's own session."),
    "explain": ("explain", "explain", "Say whether a subject may use a tool, and why."),
    "config": ("config", "config", "Check the settings without serving."),
    "health": ("health", "health", "Probe a running service; for container health checks."),
    "demo": ("demo", "demo", "Play a session on the real service, in under a minute."),
}
# Commands of the gateway side and of ranking, there once their modules are.
OPTIONAL: Final[dict[str, tuple[str, str, str]]] = {
    "ext-proc": ("ext_proc", "ext_proc", "Run Envoy's external processor on the application."),
    "import": ("import_tools", "import_tools", "Import tools from MCP servers and request files."),
    "replay": ("replay", "replay", "Play recorded sessions through selection and measure it."),
}


class LazyGroup(click.Group):
    """A group that imports a command only when it is called: `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names, in the order a newcomer needs them."""
        del ctx
        return [*COMMANDS, *(name for name, entry in OPTIONAL.items() if _exists(entry[0]))]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one command asked for."""
        entry = COMMANDS.get(cmd_name) or OPTIONAL.get(cmd_name)
        if entry is None or (cmd_name in OPTIONAL and not _exists(entry[0])):
            return None
        module = importlib.import_module(f"toolbelay.cli.{entry[0]}")
        command = getattr(module, entry[1])
        assert isinstance(command, click.Command)
        del ctx
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by their short help, importing none."""
        rows = [(name, (COMMANDS | OPTIONAL)[name][2]) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=EXIT_CODES + " Settings are TOOLBELAY_* variables: docs/configuration.md.",
)
@click.version_option(package_name="toolbelay")
def cli() -> None:
    """Sticky, re-authorized tool selection per turn for LLM gateways.

    \b
    Try it:
      toolbelay demo                                  a session played in under a minute
      toolbelay serve --dev                           the service, with everything it needs
      toolbelay apply DIR                             in another terminal: your tools and policies
      toolbelay select "book a flight" --session s1   the tools of one turn
    """  # noqa: D301 - click wants the character


def main() -> None:
    """Run the command line and end the process."""
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command (default: the process's arguments); prints its failure and returns the exit code."""
    try:
        code = cli.main(arguments, prog_name="toolbelay", standalone_mode=False)
    except click.exceptions.Abort:
        click.echo("toolbelay: interrupted", err=True)
        return INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except Exception as error:  # noqa: BLE001 - nobody is shown a stack trace
        told = as_command_error(error)
        told.show()
        return told.exit_code
    return code if isinstance(code, int) else OK


def as_command_error(error: Exception) -> CommandError:
    """Any failure as the lines and the exit code that tell of it."""
    from toolbelay.errors import ToolbelayError
    from toolbelay.settings import InvalidSettingsError

    if isinstance(error, InvalidSettingsError):
        return CommandError(*error.faults, code=REFUSED)
    if isinstance(error, ToolbelayError):
        return _of_domain(error)
    if isinstance(error, OSError):
        return CommandError(f"{error.filename or 'system'}: {error.strerror or error}")
    names = [kind.__name__ for kind in type(error).__mro__]
    return next((_OF_KIND[name] for name in names if name in _OF_KIND), _bug)(error)


# By name: naming their classes would import drivers into every command.
_OF_KIND: Final[dict[str, Callable[[Exception], CommandError]]] = {
    "StorageUnavailableError": lambda error: CommandError(
        f"the database is unavailable: {error}; check that it runs and TOOLBELAY_DATABASE_URL", code=UNAVAILABLE
    ),
    "StateUnavailableError": lambda error: CommandError(
        f"Redis is unavailable: {error}; check that it runs and TOOLBELAY_REDIS_URL", code=UNAVAILABLE
    ),
    "SchemaNotReadyError": lambda error: CommandError(str(error), code=UNAVAILABLE),
    "JwksError": lambda error: CommandError(
        f"token keys: {error}; see TOOLBELAY_JWT_JWKS_FILE and TOOLBELAY_JWT_JWKS_URL", code=REFUSED
    ),
    "MigrationError": lambda error: CommandError(str(error)),
    "ListenError": lambda error: CommandError(str(error)),
    "CrashLoopError": lambda error: CommandError(str(error)),
}


def _bug(error: Exception) -> CommandError:
    return CommandError(f"unexpected {type(error).__name__}; this is a bug, please report what you ran")


def _of_domain(error: ToolbelayError) -> CommandError:
    faults = [
        f"{fault.where}: {fault.subject + ': ' if fault.subject else ''}{fault.message}"
        for fault in getattr(error, "faults", ())
    ]
    code = {
        "PROPAGATION_UNCONFIRMED": UNCONFIRMED,
        "AUTHORITY_UNVERIFIABLE": UNAVAILABLE,
        "STATE_UNAVAILABLE": UNAVAILABLE,
        "NOT_READY": UNAVAILABLE,
    }.get(error.reason.value, REFUSED)
    return CommandError(*(faults or [error.message]), code=code)


def _exists(module: str) -> bool:
    return importlib.util.find_spec(f"toolbelay.cli.{module}") is not None


if __name__ == "__main__":
    main()
