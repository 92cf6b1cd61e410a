# rye:signed:2026-11-23T02:15:41Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:FFw1VetmhjZUgBZ2qr5iDrJDnXX9g-asxx3DF4BG48pfoS0FQeKwj9aqN-K5rM7yuTEhQkGz3S_I747iwxZsAw:0a383bb5ed1e2a55
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
