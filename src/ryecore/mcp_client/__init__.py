"""Tools of MCP servers: connections, pins, and servers that are kept running.

Only the connector's own process imports the official SDK (`session`, and what it imports: `http`,
`stdio`, `exchange`); the host imports the other modules.
"""
