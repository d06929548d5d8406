"""`python -m toolbelay.api.worker`: one worker of the supervisor in `workers.py`, settings by environment."""

from __future__ import annotations

import sys

from toolbelay.api.serve import run
from toolbelay.api.server import ListenError
from toolbelay.settings import InvalidSettingsError, load

INVALID = 3  # exit code: starting again cannot help


def main() -> int:
    """Serve; returns the exit code."""
    try:
        run(load(), worker=True)
    except InvalidSettingsError as error:
        sys.stderr.writelines(f"toolbelay: {fault}\n" for fault in error.faults)
        return INVALID
    except ListenError as error:
        sys.stderr.write(f"toolbelay: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
