# rye:signed:2026-11-28T12:26:52Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:LF5u1w-Lpndgz-ivEkWqx8bMyEWe0oD4KfbXLpF-yKcYqv7QGiRiH6hfPM785j7FM5JCV8X4Ug9jI01FlgHcAg:8ee98e1d7bdeffd0
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
