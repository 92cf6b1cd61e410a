"""Tools of MCP servers: connections, pins, and servers that are kept running.

The official SDK is imported in the connector's own process alone (`session`, `stdio`,
`http`, and `connector`, `answer`, `service`, which lead there); the host imports what is left.
"""
