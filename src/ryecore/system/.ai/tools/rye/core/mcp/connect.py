# rye:signed:2026-11-23T01:23:11Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:kC9DGnX9FY3R2MrP4unjtHKLbKo5lCyBzWzqfLhgKL8QeD61ZCeBwDVHJoJeBDRK4491k_HbGu21zfbTerQSCw:0b0180518c45e627
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
