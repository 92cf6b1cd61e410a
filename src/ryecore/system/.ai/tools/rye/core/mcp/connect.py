# rye:signed:2026-11-22T15:48:37Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:iiBwX2jjTUmwYaRTNcwxVv1tQF1LXv7gfvLrp2iLKKU4rHbLBCy1nQzKXlAuVon_LEsOJJAuGAuLl59FBWblDg:d9c159d0464212a5
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
