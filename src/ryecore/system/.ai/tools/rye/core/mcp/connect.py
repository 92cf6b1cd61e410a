# rye:signed:2026-11-22T14:47:57Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:NEaet5UZJ9ecY2zOXKWl88EMxtBI6o2E-sea7sL0N_MjwGU6faaUDPIHdd5ZZlz5dInLuwvHBiPdUH3HjunWCw:aa8e5bd2f65dca66
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
