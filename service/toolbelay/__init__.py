"""Toolbelay: sticky, re-authorized tool selection per turn for LLM gateways."""
