"""REDIS_URL in all its forms."""

from __future__ import annotations

import pytest
from redis import exceptions as errors

from toolbelay.sessions import faults
from toolbelay.sessions.connect import open_link, parse
from toolbelay.sessions.observer import Unobserved


def test_a_plain_url() -> None:
    target = parse("redis://user:p%40ss@h:7000/2")
    assert (target.kind, target.tls) == ("single", False)
    assert target.options == {"username": "user", "password": "p@ss", "host": "h", "port": 7000, "db": 2}


def test_tls_and_its_options() -> None:
    target = parse("rediss://h/?ssl_ca_certs=/ca.pem&ssl_check_hostname=no")
    assert target.tls
    assert target.options["ssl_ca_certs"] == "/ca.pem"
    assert target.options["ssl_check_hostname"] is False


def test_a_socket() -> None:
    assert parse("unix:///run/redis.sock?db=3").options["path"] == "/run/redis.sock"


def test_a_cluster() -> None:
    target = parse("redis+cluster://u:s%3Acret@a,b:7001,[::1]:7002")
    assert (target.kind, target.hosts) == ("cluster", (("a", 6379), ("b", 7001), ("::1", 7002)))
    assert (target.options["username"], target.options["password"]) == ("u", "s:cret")


def test_a_sentinel() -> None:
    target = parse("redis+sentinel://u:pw@h1:26379,h2/mymaster/3?sentinel_password=spw")
    assert (target.kind, target.hosts, target.master) == ("sentinel", (("h1", 26379), ("h2", 26379)), "mymaster")
    assert target.options["db"] == 3
    assert target.sentinel_options == {"password": "spw"}
    assert "sentinel_password" not in target.options


@pytest.mark.parametrize(
    "url",
    [
        "http://s3cret@h",
        "redis",
        "",
        "redis+nonsense://s3cret@h",
        "unix+cluster:///s3cret",
        "redis+sentinel://u:s3cret@h1",
        "redis+cluster://u:s3cret@h1/3",
        "redis+cluster://u:s3cret@h1:port",
        "redis+cluster://u:s3cret@",
        "redis://u:s3cret@h?max_connections=5",
        "redis://u:s3cret@h?db=s3cret",
        "redis://u:s3cret@h:s3cret",
    ],
)
def test_a_wrong_url_is_refused_without_its_secret(url: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the text is looked at below
        open_link(url, pool_size=1, observer=Unobserved())
    assert "s3cret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_target_does_not_show_its_secret() -> None:
    assert "s3cret" not in repr(parse("redis+sentinel://u:s3cret@h/m?sentinel_password=s3cret"))


def test_a_pool_of_none_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        open_link("redis://h", pool_size=0, observer=Unobserved())


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (errors.BusyLoadingError("loading"), "loading"),
        (errors.AuthenticationError("no"), "noauth"),
        (errors.NoPermissionError("no"), "noperm"),
        (errors.ResponseError("ERR The user executing the script can't run this command"), "noperm"),
        (errors.ResponseError("ACL failure in script: User app has no permissions to run the 'set' command"), "noperm"),
        (errors.ReadOnlyError("no"), "readonly"),
        (errors.OutOfMemoryError("no"), "oom"),
        (errors.ResponseError("BUSY Redis is busy running a script"), "busy"),
        (errors.ResponseError("MISCONF no disk"), "misconf"),
        (errors.MasterDownError("no"), "masterdown"),
        (errors.ClusterDownError("no"), "clusterdown"),
        (errors.TryAgainError("no"), "tryagain"),
        (errors.MovedError("1 h:1"), "moved"),
        (errors.TimeoutError("no"), "timeout"),
        (TimeoutError(), "timeout"),
        (errors.ConnectionError("no"), "connection"),
        (ConnectionResetError(), "connection"),
        (errors.ResponseError("ERR whatever"), "other"),
        (ValueError(), "other"),
    ],
)
def test_each_error_has_a_cause_of_the_bounded_set(error: Exception, cause: str) -> None:
    assert faults.cause_of(error) == cause
    assert cause in faults.CAUSES
