# rye:signed:2026-11-22T16:30:30Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:YsLl7eadOi7Ru-so8thBif9TTAQ2c1wT6ys8FSZZzALr5haDUlNc4ep-Ks63ApLTSbgXg1JgMuJ6BwkmwXCbDg:23a2317a45110522
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
