"""The processor in a process of its own, so that a test can kill or freeze it. Prints its port."""

from __future__ import annotations

import sys
import threading

from tests.support.ext_proc import FakeApplication, ProcessorThread
from toolbelay.ext_proc.options import ExtProcOptions


def main() -> None:
    """Serve on the port given, or any, until killed."""
    options = ExtProcOptions(deadline=30, allow_streamed=True)
    processor = ProcessorThread(options, FakeApplication(), int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    sys.stdout.write(f"{processor.port}\n")
    sys.stdout.flush()
    threading.Event().wait()


if __name__ == "__main__":
    main()
