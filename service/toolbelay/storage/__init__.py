"""Catalog, policy and routes in SQL."""
