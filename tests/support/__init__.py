"""Real servers, a faulty network and patience, for the tests."""

import os

# gRPC's fork handlers abort a child that is forked while other threads are in gRPC (PostgreSQL's server is: it runs as
# another user, so subprocess forks). Nothing here uses gRPC in a forked child.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
