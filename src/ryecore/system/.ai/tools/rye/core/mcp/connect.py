# rye:signed:2026-11-23T01:00:34Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:LfSBEE2AjgjfEGtu1Lp8tfLh1WT8PYkvHG-NxKVtFLVPfL1fbdVriPC6R8m6NK3tt_V6L1JFY-ZwaX5LcoTXAA:1b1a8d0d13f6f224
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
