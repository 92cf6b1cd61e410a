"""MCP servers, as tools of the chain: connected, pinned, kept warm and closed."""
