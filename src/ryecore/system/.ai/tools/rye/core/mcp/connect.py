# rye:signed:2026-11-23T00:47:25Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:HUfc_9RXpVEye4mVHjUmMBq6BBCbSU0TlbgOQem4wmb_mPe6BU0aOH__i6V0Yy4iJJ6u1OUjev78akJrd3OeAQ:bf51294c330ae91b
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
