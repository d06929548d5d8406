"""Who calls, and what policy lets them see and call."""
