"""What an apply is given: files by kind, bounded, not yet read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from toolbelay.catalog.definitions import Fault, is_clean_name
from toolbelay.errors import ErrorReason, ToolbelayError

MAX_BUNDLE = 256 * 1024 * 1024  # bytes of all files
MAX_FILES = 10_000  # tools files
MAX_POLICIES = 1_000  # files of a tenant
MAX_POLICY = 1024 * 1024  # bytes of one
MAX_ROUTES_TEXT = 1024 * 1024  # bytes
MAX_FILE_NAME = 128  # bytes
MAX_FAULTS = 1_000  # listed; further ones are only counted
_SHOWN_FAULTS = 10  # in the error's message; all are in `faults`
_SHOWN_BYTES = 2_000


class ConfigKind(Enum):
    """Kinds of configuration; the values are those of ConfigChange.kind in the API."""

    TOOL = "tool"
    POLICY = "policy"
    ROUTE = "route"


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as given. `name` is a base name, such as "support.cedar"."""

    name: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ConfigBundle:
    """The files of one apply. `None`: the kind is not part of it, so a prune leaves it alone."""

    tools: tuple[SourceFile, ...] | None = None
    policies: tuple[SourceFile, ...] | None = None
    routes: SourceFile | None = None
    warnings: tuple[str, ...] = ()


class ConfigRefusedError(ToolbelayError):
    """INVALID_REQUEST: the whole apply is refused and nothing changed. `faults` holds every reason."""

    def __init__(self, faults: Sequence[Fault]) -> None:
        super().__init__(ErrorReason.INVALID_REQUEST, _message(faults), field="config")
        self.faults = tuple(faults)


class BundleBuilder:
    """Gathers the chunks of an ApplyConfig stream. Raises ConfigRefusedError at the first that is over a bound."""

    def __init__(self) -> None:
        self._files: dict[ConfigKind, dict[str, list[bytes]]] = {}
        self._size = 0

    def add(self, kind: ConfigKind, name: str, content: bytes) -> None:
        """One chunk. Chunks of a tools file join in order; of the other kinds a name may come once."""
        self._size += len(content) + len(name)
        if self._size > MAX_BUNDLE:
            _refuse(name, f"the configuration is more than the limit of {MAX_BUNDLE} bytes")
        if fault := file_name_fault(name):
            _refuse(name[:MAX_FILE_NAME], fault)
        files = self._files.setdefault(kind, {})
        if name in files and kind is not ConfigKind.TOOL:
            _refuse(name, "given twice")
        if name not in files and len(files) >= _most_files(kind):
            _refuse(name, f"more than {_most_files(kind)} files of this kind")
        files.setdefault(name, []).append(content)

    def build(self) -> ConfigBundle:
        """The bundle of what was added."""
        routes = self._joined(ConfigKind.ROUTE)
        return ConfigBundle(
            tools=self._joined(ConfigKind.TOOL),
            policies=self._joined(ConfigKind.POLICY),
            routes=routes[0] if routes else None,
        )

    def _joined(self, kind: ConfigKind) -> tuple[SourceFile, ...] | None:
        files = self._files.get(kind)
        if files is None:
            return None
        return tuple(SourceFile(name, b"".join(chunks)) for name, chunks in sorted(files.items()))


def file_name_fault(name: str) -> str:
    """Why a base name is refused; "" when it is fine."""
    if not name or name in {".", ".."}:
        return "a file needs a name"
    if len(name.encode("utf-8", "surrogatepass")) > MAX_FILE_NAME:
        return f"the file's name is more than {MAX_FILE_NAME} bytes"
    if "/" in name or "\\" in name or not is_clean_name(name):
        return "a file's name must be a base name without control characters"
    return ""


def _most_files(kind: ConfigKind) -> int:
    return {ConfigKind.TOOL: MAX_FILES, ConfigKind.POLICY: MAX_POLICIES, ConfigKind.ROUTE: 1}[kind]


def _refuse(name: str, message: str) -> None:
    raise ConfigRefusedError([Fault(name, "", message)])


def _message(faults: Sequence[Fault]) -> str:
    """The first faults in one short text: an error's details travel in bounded metadata."""
    shown: list[str] = []
    for fault in faults[:_SHOWN_FAULTS]:
        line = ": ".join(part for part in (fault.where, fault.subject, fault.message) if part)
        if sum(map(len, shown)) + len(line) > _SHOWN_BYTES:
            break
        shown.append(line)
    if not shown:
        shown.append(faults[0].message[:_SHOWN_BYTES])
    more = len(faults) - len(shown)
    count = "1 fault" if len(faults) == 1 else f"{len(faults)} faults"
    return f"nothing was applied, {count}: {'; '.join(shown)}" + (f"; and {more} more" if more else "")
