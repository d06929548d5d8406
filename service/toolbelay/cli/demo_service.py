"""The demo's service: `toolbelay serve --dev` in a child process, used as any client would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from toolbelay.cli.dev_state import FOLDER, DevState
from toolbelay.cli.embedded_valkey import end_with_parent
from toolbelay.cli.exits import CommandError
from toolbelay.cli.minted import mint_token
from toolbelay.cli.rpc import TIMEOUT, selection
from toolbelay.settings import Settings, load
from toolbelay.v1 import selection_pb2

if TYPE_CHECKING:
    from types import TracebackType

_START_SECONDS: Final = 30.0
_APPLY_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 15.0


class DemoService:
    """Runs while the `with` block does. Raises CommandError when it cannot be started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._log = folder / "service.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: grpc.Channel | None = None
        self._settings: Settings | None = None

    def __enter__(self) -> Self:
        """Start, and return once it is ready."""
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                self._command("serve", "--dev", "--listen", "127.0.0.1:0"),
                cwd=self._folder,
                env=_environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - before any thread of ours
            )
        try:
            self._settings = self._wait_for_settings()
            self._channel = grpc.insecure_channel(self._settings.listen)
            self._wait_for_health()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Stop as an operator would: SIGTERM, and wait."""
        if self._channel is not None:
            self._channel.close()
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def apply(self, folder: Path) -> dict[str, Any]:
        """`toolbelay apply` as another process; its JSON."""
        done = subprocess.run(  # noqa: S603 - our own command
            self._command("apply", str(folder), "--json"),
            cwd=self._folder,
            env=_environment(),
            capture_output=True,
            timeout=_APPLY_SECONDS,
            check=False,
        )
        if done.returncode:
            raise CommandError(f"apply failed: {done.stderr.decode(errors='replace').strip()}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result

    def select(self, text: str, *, called: Sequence[str], role: str) -> selection_pb2.SelectToolsResponse:
        """One turn of the session of a user who has `role`."""
        assert self._settings is not None
        assert self._channel is not None
        request = selection_pb2.SelectToolsRequest(session_id="demo", query=text, called_tools=called)
        token = self._token(role)
        try:
            answer: selection_pb2.SelectToolsResponse = selection(self._channel).SelectTools(
                request, metadata=(("authorization", f"Bearer {token}"),), timeout=TIMEOUT
            )
        except grpc.RpcError as error:
            raise CommandError(f"the service refused: {error.code().name}: {error.details()}") from None
        return answer

    def _token(self, role: str) -> str:
        assert self._settings is not None
        key = DevState(self._folder / FOLDER).signing_key
        return mint_token(self._settings, subject=f"a-{role}", tenant=None, roles=(role,), key_file=str(key))

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "toolbelay.cli.main", *arguments]

    def _wait_for_settings(self) -> Settings:
        state = DevState(self._folder / FOLDER)
        limit = time.monotonic() + _START_SECONDS
        while time.monotonic() < limit:
            if state.environment_file.is_file():
                return load(state.environment())
            self._still_running()
            time.sleep(0.02)
        raise CommandError(f"the service did not start within {_START_SECONDS:.0f} s: {self._last_line()}")

    def _wait_for_health(self) -> None:
        stub = health_pb2_grpc.HealthStub(self._channel)
        limit = time.monotonic() + _START_SECONDS
        while time.monotonic() < limit:
            try:
                answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=1, wait_for_ready=True)
                if answer.status == health_pb2.HealthCheckResponse.SERVING:
                    return
            except grpc.RpcError:
                pass
            self._still_running()
            time.sleep(0.02)
        raise CommandError(f"the service was not ready within {_START_SECONDS:.0f} s: {self._last_line()}")

    def _still_running(self) -> None:
        assert self._process is not None
        if self._process.poll() is not None:
            raise CommandError(f"the service ended with code {self._process.returncode}: {self._last_line()}")

    def _last_line(self) -> str:
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"


def _environment() -> dict[str, str]:
    """The process's environment without settings: the demo is not about anybody's deployment."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TOOLBELAY_")}
