"""The name under which hints tell people to run us."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final

NAME: Final = "toolbelay"


def invoked_as() -> str:
    """`toolbelay` where a shell finds it, else the path of the script that runs, such as `.venv/bin/toolbelay`."""
    script = Path(sys.argv[0])
    if script.name != NAME or shutil.which(NAME):
        return NAME
    shown = os.path.relpath(script)
    return str(script) if shown.startswith("..") else shown
