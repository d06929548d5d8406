"""The service with a fault: see `broken.without_transaction`."""

from __future__ import annotations

from tests.support.broken import without_transaction
from toolbelay.api.serve import run
from toolbelay.settings import load

if __name__ == "__main__":
    without_transaction()
    run(load())
