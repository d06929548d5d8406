"""`python -m tests.support.serve_main`: one worker of the service, settings by environment."""

from __future__ import annotations

from toolbelay.api.serve import run
from toolbelay.settings import load

if __name__ == "__main__":
    run(load())
