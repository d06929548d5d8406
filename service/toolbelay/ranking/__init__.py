"""Strategies that score the eligible tools for a turn."""
