"""`python -m bench.served`: `toolbelay serve`, settings by environment, for the bench to start."""

from __future__ import annotations

import sys

from toolbelay.cli.main import run

if __name__ == "__main__":
    sys.exit(run(["serve"]))
