"""The service with a fault: see `broken.with_plain_set`."""

from __future__ import annotations

from tests.support.broken import with_plain_set
from toolbelay.api.serve import run
from toolbelay.settings import load

if __name__ == "__main__":
    with_plain_set()
    run(load())
