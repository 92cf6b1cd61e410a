# rye:signed:2026-11-23T02:00:08Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:eYvAJeHGcK_GJV4eygv1jOc09fkHg3FAnLcE5PoYmjKN7g05kGPUnyQLk9uWMzNub6Y6yJohnt76l6YxHn0ZAw:902ac92e49e49785
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
