"""Real servers, a faulty network and patience, for the tests."""
