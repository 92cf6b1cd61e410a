# rye:signed:2026-11-23T02:50:17Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:B7MIFPlsT22cVPqihDJQ4fzmcXErIDFmf_lpQ7GmTPddFMwrQTVzXO3apddAKMJTM7HCpXW4B78cVr8rG1iSAg:365fb507b56e536a
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
