"""From an exception of redis-py to a cause: a bounded set of words, fit for a metric label and a log line."""

from __future__ import annotations

from typing import Final

from redis import exceptions as errors

BREAKER_OPEN: Final = "breaker_open"
POOL_EXHAUSTED: Final = "pool_exhausted"
TIMEOUT: Final = "timeout"
CONNECTION: Final = "connection"
LOADING: Final = "loading"
TOO_LARGE: Final = "too_large"
OTHER: Final = "other"

# The most special class first: redis-py counts LOADING and NOAUTH among its connection errors.
_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (errors.BusyLoadingError, LOADING),
    (errors.AuthenticationError, "noauth"),
    (errors.AuthorizationError, "noauth"),
    (errors.NoPermissionError, "noperm"),
    (errors.ReadOnlyError, "readonly"),
    (errors.OutOfMemoryError, "oom"),
    (errors.MasterDownError, "masterdown"),
    (errors.ClusterDownError, "clusterdown"),
    (errors.TryAgainError, "tryagain"),
    (errors.AskError, "moved"),
    (errors.NoScriptError, "noscript"),
    (errors.TimeoutError, TIMEOUT),
    (TimeoutError, TIMEOUT),
    (errors.ConnectionError, CONNECTION),
    (OSError, CONNECTION),
    (errors.RedisClusterException, CONNECTION),
)
_PREFIXES: Final = (("BUSY", "busy"), ("MISCONF", "misconf"), ("NOREPLICAS", "noreplicas"), ("OOM", "oom"))
# The ACL allows EVAL but not a command inside the script; the wording of newer and older servers.
_FORBIDDEN_INSIDE: Final = ("ACL failure in script", "executing the script can't")

CAUSES: Final = frozenset({word for _, word in _CLASSES} | {word for _, word in _PREFIXES}) | {
    BREAKER_OPEN,
    POOL_EXHAUSTED,
    TOO_LARGE,
    OTHER,
}


def cause_of(error: BaseException) -> str:
    """One of `CAUSES`."""
    for kind, word in _CLASSES:
        if isinstance(error, kind):
            return word
    text = str(error)
    if any(words in text for words in _FORBIDDEN_INSIDE):
        return "noperm"
    return next((word for prefix, word in _PREFIXES if text.startswith(prefix)), OTHER)


def is_outage(cause: str) -> bool:
    """Whether a cause speaks of a server that does not answer, which is what the breaker counts."""
    return cause in (TIMEOUT, CONNECTION, LOADING)
