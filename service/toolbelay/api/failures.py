"""Failures of starting up, as one line for an operator. Their messages hold no secret."""

from __future__ import annotations

from typing import Final

from toolbelay.api.server import ListenError
from toolbelay.authority.keys import JwksError
from toolbelay.settings import InvalidSettingsError
from toolbelay.storage.guard import MigrationError
from toolbelay.storage.port import StorageUnavailableError

_REMEDIES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (ListenError, ""),
    (MigrationError, ""),
    (StorageUnavailableError, "database: {}; see TOOLBELAY_DATABASE_URL and `toolbelay config check`"),
    (JwksError, "token keys: {}; see TOOLBELAY_JWT_JWKS_FILE and TOOLBELAY_JWT_JWKS_URL"),
)


def start_failure(error: Exception) -> tuple[str, ...]:
    """One line per fault. Of an unforeseen kind only the kind is told: its message may quote a secret."""
    if isinstance(error, InvalidSettingsError):
        return error.faults
    for kind, remedy in _REMEDIES:
        if isinstance(error, kind):
            return (remedy.format(error) if remedy else str(error),)
    return (f"unexpected {type(error).__qualname__} while starting; this is a bug",)
