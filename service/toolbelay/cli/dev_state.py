"""The development state in `.toolbelay/`: secrets and addresses that `serve --dev` makes and others read.

`environment.json` holds the TOOLBELAY_* variables of the development service, so that client commands in
the same folder need none. Everything in there is readable by its owner only.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolbelay.cli.exits import CommandError
from toolbelay.settings import PREFIX, VARIABLES, Settings, load

FOLDER: Final = ".toolbelay"
ISSUER: Final = "toolbelay-dev"
AUDIENCE: Final = "toolbelay"
TENANT: Final = "default"
_MAX_SOCKET_PATH: Final = 100  # bytes; the kernel's limit for UNIX sockets is 107

# Settings that say which deployment is meant. Any of them given: the environment rules, not `.toolbelay/`.
IDENTIFYING: Final = frozenset(
    PREFIX + name
    for name in (
        "DATABASE_URL", "REDIS_URL", "STATE_SECRET", "JWT_ISSUER", "JWT_AUDIENCE",
        "JWT_HS256_SECRET", "JWT_JWKS_FILE", "JWT_JWKS_URL",
    )
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class DevState:
    """Paths inside the development folder."""

    folder: Path

    @property
    def environment_file(self) -> Path:
        """TOOLBELAY_* variables, JSON."""
        return self.folder / "environment.json"

    @property
    def signing_key(self) -> Path:
        """Ed25519 key that signs development tokens, PEM."""
        return self.folder / "signing_key.pem"

    @property
    def jwks(self) -> Path:
        """Its public half."""
        return self.folder / "jwks.json"

    @property
    def database(self) -> Path:
        """The SQLite file."""
        return self.folder / "toolbelay.db"

    def environment(self) -> dict[str, str]:
        """The variables of the development service. Raises CommandError when the file is damaged."""
        try:
            found = json.loads(self.environment_file.read_text())
            return {str(name): str(value) for name, value in found.items()}
        except (OSError, ValueError, AttributeError):
            raise CommandError(f"{self.environment_file} cannot be read; run `toolbelay serve --dev` again") from None


def here() -> DevState:
    """The development folder of the working directory, there or not."""
    return DevState(Path.cwd() / FOLDER)


def find() -> DevState | None:
    """The development state of the working directory, where `serve --dev` has been."""
    state = here()
    return state if state.environment_file.is_file() else None


def settings_of(environment: Mapping[str, str] | None = None) -> Settings:
    """The settings of a client command: the environment's, or the development state's when it names none.

    Settings that identify no deployment (LOG_LEVEL, LISTEN…) override the development state's.
    """
    given = dict(os.environ if environment is None else environment)
    if using_dev_state(given):
        state = find()
        assert state is not None
        given = state.environment() | given
    return load(given)


def using_dev_state(environment: Mapping[str, str] | None = None) -> bool:
    """Whether client commands work on `.toolbelay/`."""
    given = os.environ if environment is None else environment
    return not IDENTIFYING & set(given) and find() is not None


def prepare(state: DevState, given: Mapping[str, str]) -> dict[str, str]:
    """Make what is missing in the folder; the variables of the service, those `given` winning."""
    state.folder.mkdir(mode=0o700, exist_ok=True)
    state.folder.chmod(0o700)
    (state.folder / ".gitignore").write_text("*\n")
    kept = state.environment() if state.environment_file.is_file() else {}
    _make_signing_key(state)
    own = {
        "TOOLBELAY_DATABASE_URL": f"sqlite+aiosqlite:///{state.database}",
        "TOOLBELAY_STATE_SECRET": kept.get("TOOLBELAY_STATE_SECRET") or secrets.token_urlsafe(48),
        "TOOLBELAY_JWT_ISSUER": ISSUER,
        "TOOLBELAY_JWT_AUDIENCE": AUDIENCE,
        "TOOLBELAY_DEFAULT_TENANT": TENANT,
        "TOOLBELAY_REFLECTION": "true",
        "TOOLBELAY_LOG_FORMAT": "console",
    }
    if not {"TOOLBELAY_JWT_HS256_SECRET", "TOOLBELAY_JWT_JWKS_URL"} & set(given):
        own["TOOLBELAY_JWT_JWKS_FILE"] = str(state.jwks)
    return own | {name: value for name, value in given.items() if name in VARIABLES}


def publish(state: DevState, environment: Mapping[str, str]) -> None:
    """Let client commands in this folder find the service."""
    write_private(state.environment_file, json.dumps(dict(environment), indent=2).encode() + b"\n")


def lock(state: DevState) -> int:
    """One development service a folder. Returns the descriptor that holds the lock while it is open."""
    descriptor = os.open(state.folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise CommandError(f"another `toolbelay serve --dev` runs in {state.folder}; stop it first") from None
    return descriptor


def socket_path(state: DevState) -> Path:
    """Where the embedded Valkey listens: in the folder, or in a short private one when the path is too long."""
    path = state.folder / "valkey.sock"
    if len(os.fsencode(path)) <= _MAX_SOCKET_PATH:
        return path
    return Path(tempfile.mkdtemp(prefix="toolbelay-")) / "valkey.sock"


def write_private(path: Path, content: bytes) -> None:
    """Replace a file as a whole, readable by its owner only."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    temporary.replace(path)


def _make_signing_key(state: DevState) -> None:
    from toolbelay.authority.minting import SigningKey

    if state.signing_key.is_file() and state.jwks.is_file():
        return
    key = SigningKey.generate()
    write_private(state.signing_key, key.pem())
    write_private(state.jwks, key.jwks())
