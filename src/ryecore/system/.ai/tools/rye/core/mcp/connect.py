# rye:signed:2026-11-22T18:36:24Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:rJnEHV48BRZWqvA1frUhfhCy-v42xbbOteR1OMw9LdB8fj6LGB2KmT-tcDBEsa8QvosSd4cglzeOoSB3b45SBQ:8e14400465dac0ca
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
