"""How this process shares its interpreter between the event loop and threads, and what its garbage collector looks at.

A worker holds its catalogs for as long as they are in force: hundreds of thousands of objects that are no garbage. A
full collection that looks at all of them holds the event loop for 30 ms at 10,000 tools.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

# A thread that builds a snapshot or an index gives the interpreter back after so long (Python's own default: 5 ms).
SWITCH_SECONDS: Final = 0.0005
# Allocations between two looks at young objects. Calls leave few cycles, so looking more often only costs.
YOUNG_OBJECTS: Final = 20_000


def share_interpreter() -> None:
    """Let the event loop have the interpreter soon when it wants it."""
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.set_threshold(YOUNG_OBJECTS, 10, 20)


def spare_what_stays(*, collect: bool) -> None:
    """Take what is loaded out of the collector's sight. It is freed all the same when nothing refers to it any more.

    `collect`: first free what is garbage, which takes as long as a full collection.
    """
    if collect:
        gc.collect()
    gc.freeze()
