"""Tools, routes, wire formats and the snapshot of a tenant."""
