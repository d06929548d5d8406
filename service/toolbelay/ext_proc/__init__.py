"""Envoy external processor."""
