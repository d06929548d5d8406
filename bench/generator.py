"""The load generator `load.c`: built where it is missing, fed with records, its line of JSON read."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from google.protobuf.message import Message

SOURCE = Path(__file__).with_name("load.c")
OUT = Path(__file__).with_name("out")
_SIZES = struct.Struct("<II")


class MissingToolError(Exception):
    """A program that the bench needs is not installed; the message says how to get it."""


@dataclass(frozen=True, slots=True)
class Record:
    """One request: the value of its `authorization` metadata ("" = none) and its messages, framed as gRPC does."""

    authorization: bytes
    body: bytes

    @classmethod
    def of(cls, token: str, *messages: Message) -> Self:
        """A call with one message, or several that are streamed."""
        raws = [message.SerializeToString() for message in messages]
        framed = b"".join([b"\0" + len(raw).to_bytes(4, "big") + raw for raw in raws])
        return cls(f"Bearer {token}".encode() if token else b"", framed)

    @property
    def message(self) -> bytes:
        """The first message."""
        return self.body[5 : 5 + int.from_bytes(self.body[1:5], "big")]


@dataclass(frozen=True, slots=True)
class Load:
    """What one run saw. Latencies in milliseconds; `failed`: answers that were not grpc-status 0, and none at all."""

    answered: int
    failed: int
    first_failure: str
    seconds: float
    p50_ms: float
    p90_ms: float
    p99_ms: float
    max_ms: float
    bytes: int
    records: int

    @property
    def rate(self) -> float:
        """Good answers a second."""
        return self.answered / self.seconds if self.seconds else 0.0


def build() -> Path:
    """Compile `load.c` into bench/out, once for each state of the source. Raises MissingToolError."""
    program = OUT / "load"
    if program.exists() and program.stat().st_mtime >= SOURCE.stat().st_mtime:
        return program
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        raise MissingToolError("a C compiler builds the load generator: apt-get install -y gcc libc6-dev")
    OUT.mkdir(exist_ok=True)
    subprocess.run([compiler, "-O2", "-o", program, SOURCE], check=True)
    return program


def require() -> None:
    """Raise MissingToolError unless all that the bench needs is there."""
    build()
    _h2load()


def _h2load() -> str:
    program = shutil.which("h2load")
    if program is None:
        raise MissingToolError("h2load is missing: apt-get install -y nghttp2-client")
    return program


def write_records(path: Path, records: Iterable[Record]) -> Path:
    """Write the file that `run` reads."""
    with path.open("wb") as file:
        for record in records:
            file.write(_SIZES.pack(len(record.authorization), len(record.body)))
            file.write(record.authorization)
            file.write(record.body)
    return path


def run(
    port: int,
    method: str,
    records: Path,
    *,
    seconds: float,
    connections: int = 4,
    streams: int = 8,
    rate: float = 0,
    wrap: bool = True,
) -> Load:
    """Send the records for so many seconds. `rate`: requests a second, 0 = as fast as answers come.

    `wrap` False ends at the last record. Raises AssertionError when an answer was not grpc-status 0.
    """
    done = subprocess.run(
        [
            str(build()), "127.0.0.1", str(port), method, str(records),
            str(connections), str(streams), str(seconds), str(rate), "1" if wrap else "0",
        ],
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds + 60,
    )  # fmt: skip
    assert done.returncode == 0, f"the load generator ended: {done.stderr}"
    load = Load(**json.loads(done.stdout))
    assert not load.failed, f"{load.failed} of {load.failed + load.answered} answers failed: {load.first_failure}"
    return load


def h2load(port: int, method: str, record: Record, folder: Path, *, requests: int) -> float:
    """Requests a second by h2load, which sends one body and does not read grpc-status. Raises MissingToolError."""
    program = _h2load()
    body = folder / "h2load.bin"
    body.write_bytes(record.body)
    done = subprocess.run(
        [
            program, "-n", str(requests), "-c", "4", "-m", "8", "-t", "1", "-d", str(body),
            "-H", "content-type: application/grpc", "-H", "te: trailers",
            "-H", f"authorization: {record.authorization.decode()}",
            f"http://127.0.0.1:{port}{method}",
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )  # fmt: skip
    for line in done.stdout.splitlines():
        if line.startswith("finished in"):
            return float(line.split(",")[1].split()[0])
    raise AssertionError(f"h2load said nothing of its rate: {done.stdout[-400:]}")
