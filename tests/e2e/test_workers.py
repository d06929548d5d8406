"""`serve --workers N`: one port, one metrics endpoint, dead workers replaced, a crash loop given up."""

from __future__ import annotations

import socket
import tempfile
import threading
import urllib.request
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import psutil
import pytest

from tests.support.command import Serving, serving
from tests.support.servers import RedisServer
from tests.support.service import AUDIENCE, ISSUER, SECRET, free_port, token
from tests.support.waiting import wait_until
from toolbelay.settings import load
from toolbelay.storage.migrate import upgrade
from toolbelay.v1 import selection_pb2, selection_pb2_grpc

pytestmark = pytest.mark.e2e


@pytest.fixture
def environment(tmp_path: Path, fresh_redis_server: object) -> dict[str, str]:
    """Settings of a service on SQLite and a Valkey of its own."""
    assert callable(fresh_redis_server)
    redis: RedisServer = fresh_redis_server()
    url = f"sqlite+aiosqlite:///{tmp_path}/x.db"
    upgrade(url)
    found = {
        "TOOLBELAY_LISTEN": f"127.0.0.1:{free_port()}",
        "TOOLBELAY_METRICS_LISTEN": f"127.0.0.1:{free_port()}",
        "TOOLBELAY_DATABASE_URL": url,
        "TOOLBELAY_REDIS_URL": redis.url,
        "TOOLBELAY_STATE_SECRET": SECRET,
        "TOOLBELAY_JWT_ISSUER": ISSUER,
        "TOOLBELAY_JWT_AUDIENCE": AUDIENCE,
        "TOOLBELAY_JWT_HS256_SECRET": SECRET,
        "TOOLBELAY_WORKERS": "2",
        "TOOLBELAY_GRACE_SECONDS": "2",
    }
    load(found)
    return found


@pytest.fixture
def workers(tmp_path: Path, environment: dict[str, str]) -> Iterator[Serving]:
    with serving(cwd=tmp_path, environment=environment) as found:
        wait_until(lambda: found.said.count('"ready"') >= 2, 60, "two workers are ready")
        yield found


def call(target: str) -> grpc.StatusCode:
    """One call on a connection of its own; NOT_FOUND is the right answer, there is no catalog."""
    options = [("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(target, options) as channel:
        stub = selection_pb2_grpc.ToolSelectionServiceStub(channel)
        metadata = (("authorization", f"Bearer {token()}"),)
        try:
            stub.SelectTools(selection_pb2.SelectToolsRequest(), metadata=metadata, timeout=10)
        except grpc.RpcError as error:
            code: grpc.StatusCode = error.code()
            return code
    return grpc.StatusCode.OK


def children(service: Serving) -> list[psutil.Process]:
    found: list[psutil.Process] = psutil.Process(service.process.pid).children()
    return [child for child in found if child.status() != psutil.STATUS_ZOMBIE]


def counted(environment: dict[str, str], name: str) -> float:
    url = f"http://{environment['TOOLBELAY_METRICS_LISTEN']}/metrics"
    with urllib.request.urlopen(url, timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


def test_workers_share_the_port_and_one_metrics_endpoint(workers: Serving, environment: dict[str, str]) -> None:
    target = environment["TOOLBELAY_LISTEN"]
    assert {call(target) for _ in range(20)} == {grpc.StatusCode.NOT_FOUND}
    assert counted(environment, 'toolbelay_calls_total{code="NOT_FOUND",method="SelectTools"}') == 20
    assert counted(environment, "toolbelay_ready") == 1
    with socket.socket() as other, pytest.raises(OSError, match="in use"):
        other.bind(("127.0.0.1", int(target.rpartition(":")[2])))
    metrics = [path for path in Path(tempfile.gettempdir()).glob("toolbelay-metrics-*") if path.is_dir()]
    assert workers.terminate() == 0
    assert sum(path.exists() for path in metrics) < len(metrics)


def test_a_dead_worker_is_replaced(workers: Serving, environment: dict[str, str]) -> None:
    before = children(workers)
    before[0].kill()
    wait_until(lambda: workers.said.count('"ready"') >= 3, 60, "the new worker is ready")
    after = children(workers)
    assert len(after) == 2
    assert before[1].pid in {child.pid for child in after}
    assert '"worker_died"' in workers.said
    assert {call(environment["TOOLBELAY_LISTEN"]) for _ in range(10)} == {grpc.StatusCode.NOT_FOUND}


def test_no_worker_outlives_its_supervisor(workers: Serving) -> None:
    before = children(workers)
    workers.process.kill()
    workers.process.wait()
    wait_until(lambda: not any(child.is_running() for child in before), 30)


def test_a_stop_under_load_loses_no_call(tmp_path: Path, environment: dict[str, str]) -> None:
    target = environment["TOOLBELAY_LISTEN"]
    codes: Counter[grpc.StatusCode] = Counter()
    stop = threading.Event()

    def load_() -> None:
        while not stop.is_set():
            codes[call(target)] += 1

    with serving(cwd=tmp_path, environment=environment | {"TOOLBELAY_WORKERS": "1"}) as found:
        threads = [threading.Thread(target=load_) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: codes[grpc.StatusCode.NOT_FOUND] > 50, 30)
        assert found.terminate() == 0
        stop.set()
        for thread in threads:
            thread.join()
    # Every call has its true answer, or the one that a client may retry on another replica.
    assert set(codes) <= {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.UNAVAILABLE}


def test_a_crash_loop_is_given_up_with_a_clear_error(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "x.pem").write_text("not a certificate")
    broken = {"TOOLBELAY_TLS_CERT": f"{tmp_path}/x.pem", "TOOLBELAY_TLS_KEY": f"{tmp_path}/x.pem"}
    with serving(cwd=tmp_path, environment=environment | broken, ready=False) as found:
        assert found.process.wait(90) == 1
    assert "giving up" in found.said
    assert "TLS files cannot be used" in found.said
    assert "Traceback" not in found.said


def test_a_used_port_is_refused_before_any_worker_starts(tmp_path: Path, environment: dict[str, str]) -> None:
    for name in ("TOOLBELAY_LISTEN", "TOOLBELAY_METRICS_LISTEN"):
        with socket.socket() as other:
            other.bind(("127.0.0.1", int(environment[name].rpartition(":")[2])))
            other.listen()
            with serving(cwd=tmp_path, environment=environment, ready=False) as found:
                assert found.process.wait(30) == 1
        assert name in found.said
        assert "Traceback" not in found.said


def test_a_database_without_schema_is_waited_for(tmp_path: Path, environment: dict[str, str]) -> None:
    url = f"sqlite+aiosqlite:///{tmp_path}/later.db"
    alone = environment | {"TOOLBELAY_WORKERS": "1", "TOOLBELAY_DATABASE_URL": url}
    with serving(cwd=tmp_path, environment=alone, ready=False) as found:
        wait_until(lambda: call(environment["TOOLBELAY_LISTEN"]) is grpc.StatusCode.UNAVAILABLE, 60)
        wait_until(lambda: '"listening"' in found.said, 60)
        assert call(environment["TOOLBELAY_LISTEN"]) is grpc.StatusCode.UNAVAILABLE
        upgrade(url)
        wait_until(lambda: call(environment["TOOLBELAY_LISTEN"]) is grpc.StatusCode.NOT_FOUND, 30)
        assert found.terminate() == 0
    assert "Traceback" not in found.said
