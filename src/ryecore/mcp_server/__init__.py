"""ryecore as an MCP server: the three verbs for models elsewhere."""
