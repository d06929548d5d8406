"""Strategies that score the eligible tools for a turn."""

import os

# One query is one thread's work. BLAS's own threads wait for each other by spinning: beside a busy event loop that
# makes 1 ms into 16. Read when numpy is first imported, which only this package does; an explicit value wins.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
