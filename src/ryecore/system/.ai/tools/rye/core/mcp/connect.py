# rye:signed:2026-11-22T10:47:38Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:BQV_KuDjEgGb9HYfZD65OdeMQUiu3M9dFq4aF79zTOw41hGPIyyyiCPtfhrHn79ZRPS7vdilzT8F7S7MT6KNBw:262a65692183577b
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
