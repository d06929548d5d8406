"""Adapters of OpenAI-compatible HTTP endpoints: vectors, and a model that picks tools."""
