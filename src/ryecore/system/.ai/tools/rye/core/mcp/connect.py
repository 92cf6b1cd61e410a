# rye:signed:2026-11-22T23:52:09Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:uEogn2v4l3H5HghDA99o4xUdg8dfZ3ryoUoFzMrGuoyb5tJkYH84QT8DXbgOCl_Y7k4sKp64h3XK6xFQ4qxOCQ:b05fe7542ab76a7c
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
