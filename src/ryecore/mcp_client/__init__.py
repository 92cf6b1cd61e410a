"""Tools of MCP servers: connections, pins, and servers that are kept running.

Only the connector's own process imports the official SDK (`connector`, and what it imports for a
call: `session`, `http`, `stdio`, `peer`); the host imports the other modules.
"""
