"""The Lua scripts: loaded from `scripts/`, their declared contracts checked at import.

A script's header names its KEYS and ARGV; the counts that Python declares here, the header and the highest index the
body uses must agree, or the import fails.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.resources import files

_DIRECTORY = files(__package__) / "scripts"
_PRELUDE = (_DIRECTORY / "prelude.lua").read_text(encoding="utf-8")
_HEADER_FIELDS = ("KEYS", "ARGV", "RETURNS", "WHY LUA")


class ScriptContractError(Exception):
    """A script's header, its body and its Python declaration disagree."""


@dataclass(frozen=True, slots=True)
class Script:
    """One script. `keys`, `args`: the names from its header; `variadic`: any number of the last argument."""

    name: str
    source: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    variadic: bool
    sha: str = field(init=False)
    _by_hash: bytes = field(init=False, repr=False)  # the words of every EVALSHA before its keys

    def __post_init__(self) -> None:
        # EVALSHA's own naming of scripts, not a security measure.
        digest = hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest()
        object.__setattr__(self, "sha", digest)
        object.__setattr__(self, "_by_hash", _bulks((b"EVALSHA", digest.encode(), b"%d" % len(self.keys))))

    def by_hash(self, keys: tuple[bytes, ...], args: tuple[bytes, ...]) -> bytes:
        """The EVALSHA command in wire form. Raises ScriptContractError on a wrong count of keys or arguments."""
        self._check_counts(keys, args)
        return b"*%d\r\n" % (3 + len(keys) + len(args)) + self._by_hash + _bulks((*keys, *args))

    def by_source(self, keys: tuple[bytes, ...], args: tuple[bytes, ...]) -> bytes:
        """The EVAL command in wire form, which also teaches the server the script."""
        self._check_counts(keys, args)
        return command(b"EVAL", self.source.encode(), b"%d" % len(keys), *keys, *args)

    def _check_counts(self, keys: tuple[bytes, ...], args: tuple[bytes, ...]) -> None:
        short = len(self.args) - len(args)
        if len(keys) != len(self.keys) or (short > 1 if self.variadic else short):
            raise ScriptContractError(f"{self.name}: {len(keys)} keys and {len(args)} arguments given")


def command(*words: bytes) -> bytes:
    """One command in RESP. Done here because redis-py's packer takes four times as long."""
    return b"*%d\r\n" % len(words) + _bulks(words)


def _bulks(words: Iterable[bytes]) -> bytes:
    parts: list[bytes] = []
    for word in words:
        size = len(word)
        parts += (_SIZES[size] if size < len(_SIZES) else b"$%d\r\n" % size, word, b"\r\n")
    return b"".join(parts)


_SIZES = [b"$%d\r\n" % size for size in range(256)]


def parse_header(name: str, body: str) -> dict[str, str]:
    """The header's fields. Raises ScriptContractError when one is missing."""
    found = dict(re.findall(r"^-- ([A-Z ]+): (.+)$", body, re.MULTILINE))
    missing = [wanted for wanted in _HEADER_FIELDS if wanted not in found]
    if missing:
        raise ScriptContractError(f"{name}: the header lacks {', '.join(missing)}")
    return found


def load(name: str, *, keys: int, args: int, variadic: bool = False) -> Script:
    """Read a script and check its contract. Raises ScriptContractError."""
    body = (_DIRECTORY / f"{name}.lua").read_text(encoding="utf-8")
    header = parse_header(name, body)
    script = Script(
        name=name,
        source=f"{_PRELUDE}\n{body}",
        keys=_names(header["KEYS"]),
        args=_names(header["ARGV"]),
        variadic=header["ARGV"].endswith("..."),
    )
    _check(script, body, keys=keys, args=args, variadic=variadic)
    return script


def _names(declared: str) -> tuple[str, ...]:
    """The names in `a, b (with a remark, maybe), c...`."""
    bare = re.sub(r"\([^)]*\)", "", declared)
    return tuple(part.strip(" .") for part in bare.split(",") if part.strip(" ."))


def _check(script: Script, body: str, *, keys: int, args: int, variadic: bool) -> None:
    declared = (len(script.keys), len(script.args), script.variadic)
    if declared != (keys, args, variadic):
        raise ScriptContractError(f"{script.name}: header declares {declared}, Python {(keys, args, variadic)}")
    for table, count in (("KEYS", keys), ("ARGV", args)):
        used = {int(index) for index in re.findall(rf"{table}\[(\d+)\]", body)}
        expected = set(range(1, count + 1)) - ({count} if variadic and table == "ARGV" else set())
        if used != expected:
            raise ScriptContractError(f"{script.name}: uses {table} {sorted(used)}, header declares {count}")


OPEN = load("open", keys=2, args=7)
PEEK = load("peek", keys=2, args=1)
SAVE = load("save", keys=2, args=12)
MERGE = load("merge", keys=2, args=3, variadic=True)
END = load("end", keys=2, args=2)
END_PRINCIPAL = load("end_principal", keys=1, args=0)
ADOPT = load("adopt", keys=2, args=4)
FORGET = load("forget", keys=2, args=1)
RAISE_GENERATION = load("raise_generation", keys=1, args=2)
PROBE = load("probe", keys=1, args=1)

ALL = (OPEN, PEEK, SAVE, MERGE, END, END_PRINCIPAL, ADOPT, FORGET, RAISE_GENERATION, PROBE)
