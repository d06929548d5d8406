"""Tools of MCP servers and of recorded requests into `tools/<toolset>.jsonl`: what differs, what is refused, and why."""
