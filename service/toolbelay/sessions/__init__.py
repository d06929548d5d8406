"""Session state in Redis."""
