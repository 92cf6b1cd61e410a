# rye:signed:2026-11-22T18:01:41Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:zdo-scCONEFyATAo_rAaVB094U9p0CG6cEBrVz9B3DoA8Az5P_AmYEZ3l9blcVyQ_nPa1XPdLcpqXp1czxNeDg:01cb1e65a1e63935
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
