"""Reads a configuration folder: `tools/*.jsonl`, `policies/*.cedar`, `routes.yaml`."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

from toolbelay.application.apply_bundle import (
    MAX_BUNDLE,
    MAX_FILES,
    MAX_POLICIES,
    MAX_POLICY,
    MAX_ROUTES_TEXT,
    ConfigBundle,
    ConfigRefusedError,
    SourceFile,
    file_name_fault,
)
from toolbelay.catalog.definitions import Fault

ROUTES_FILE = "routes.yaml"


def read_config(folder: Path) -> ConfigBundle:
    """The bundle of a folder. Raises ConfigRefusedError that names each file that cannot be taken.

    A kind is part of the bundle when its folder (or `routes.yaml`) exists. Files of other names in
    `tools/` and `policies/` are ignored with a warning.
    """
    if not folder.is_dir():
        raise ConfigRefusedError([Fault(str(folder), "", "is not a folder")])
    reading = _Reading(folder)
    tools = reading.files("tools", ".jsonl", MAX_FILES, MAX_BUNDLE)
    policies = reading.files("policies", ".cedar", MAX_POLICIES, MAX_POLICY)
    routes = reading.routes()
    if tools is None and policies is None and routes is None:
        reading.faults.append(Fault(str(folder), "", "has none of tools/, policies/ and routes.yaml"))
    if reading.faults:
        raise ConfigRefusedError(reading.faults)
    return ConfigBundle(tools, policies, routes, tuple(reading.warnings))


class _Reading:
    """One pass over a folder, gathering faults."""

    def __init__(self, folder: Path) -> None:
        self.faults: list[Fault] = []
        self.warnings: list[str] = []
        self._folder = folder
        self._left = MAX_BUNDLE

    def files(self, kind: str, suffix: str, most: int, limit: int) -> tuple[SourceFile, ...] | None:
        """The files of a sub-folder by name; `None` when there is no such folder."""
        folder = self._folder / kind
        if not folder.exists():
            return None
        if not folder.is_dir():
            self._fault(kind, "is not a folder")
            return None
        files: list[SourceFile] = []
        for path in self._listed(folder, kind):
            if path.suffix != suffix:
                if not path.name.startswith("."):
                    self.warnings.append(f"{kind}/{path.name} is ignored: only *{suffix} is read here")
            elif len(files) == most:
                self._fault(kind, f"holds more than {most} files")
                break
            elif fault := file_name_fault(path.name):
                self._fault(f"{kind}/{path.name}", fault)
            elif (content := self._read(path, f"{kind}/{path.name}", limit)) is not None:
                files.append(SourceFile(path.name, content))
        return tuple(files)

    def routes(self) -> SourceFile | None:
        """`routes.yaml`, when there is one."""
        for other in ("routes.yml", "route.yaml"):
            if (self._folder / other).exists():
                self._fault(other, f"is not read; name it {ROUTES_FILE}")
        path = self._folder / ROUTES_FILE
        if not path.exists():
            return None
        content = self._read(path, ROUTES_FILE, MAX_ROUTES_TEXT)
        return None if content is None else SourceFile(ROUTES_FILE, content)

    def _listed(self, folder: Path, kind: str) -> Iterator[Path]:
        try:
            yield from sorted(folder.iterdir(), key=lambda path: path.name)
        except OSError as error:
            self._fault(kind, f"cannot be listed: {error.strerror}")

    def _read(self, path: Path, shown: str, limit: int) -> bytes | None:
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                self._fault(shown, "is not a regular file")
                return None
            with path.open("rb") as file:
                content = file.read(min(limit, self._left) + 1)
        except OSError as error:
            self._fault(shown, f"cannot be read: {error.strerror}")
            return None
        if len(content) > limit:
            self._fault(shown, f"is more than the limit of {limit} bytes")
            return None
        if len(content) > self._left:
            self._fault(shown, f"takes the folder over the limit of {MAX_BUNDLE} bytes")
            return None
        self._left -= len(content)
        return content

    def _fault(self, where: str, message: str) -> None:
        self.faults.append(Fault(where, "", message))
