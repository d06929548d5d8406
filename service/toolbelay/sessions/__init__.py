"""Session state in Redis: `store.py` implements the port in `port.py` with the scripts in `scripts/`.

`connect.py` leads from a URL to a link (`link.py`, `cluster.py`) over endpoints (`endpoint.py`), one per server, each with a
breaker and a few connections (`lane.py`), whose traffic is `wire.py`'s. redis-py is known here and nowhere else. See docs/state.md.
"""
