"""The service with a fault: see `broken.without_generation_check`."""

from __future__ import annotations

from tests.support.broken import without_generation_check
from toolbelay.api.serve import run
from toolbelay.settings import load

if __name__ == "__main__":
    without_generation_check()
    run(load())
