"""`python -m toolbelay.api.worker`: one worker of the supervisor in `workers.py`, settings by environment."""

from __future__ import annotations

import sys

from toolbelay.api.failures import start_failure
from toolbelay.api.serve import run
from toolbelay.settings import InvalidSettingsError, load

INVALID = 3  # exit code: starting again cannot help


def main() -> int:
    """Serve; returns the exit code."""
    try:
        run(load(), worker=True)
    except Exception as error:  # noqa: BLE001 - nobody is shown a stack trace
        sys.stderr.writelines(f"toolbelay: {line}\n" for line in start_failure(error))
        return INVALID if isinstance(error, InvalidSettingsError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
