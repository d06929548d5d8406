"""Hooks for other gateways."""
