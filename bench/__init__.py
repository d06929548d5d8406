"""Benchmarks, the soak run and the quality measurements; run one with `python -m bench.NAME`."""
