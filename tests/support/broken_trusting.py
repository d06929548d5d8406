"""The service with a fault: see `broken.trusting_first_reads`."""

from __future__ import annotations

from tests.support.broken import trusting_first_reads
from toolbelay.api.serve import run
from toolbelay.settings import load

if __name__ == "__main__":
    trusting_first_reads()
    run(load())
