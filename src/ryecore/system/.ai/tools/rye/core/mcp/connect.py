# rye:signed:2026-11-23T07:09:24Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:BUBma_M-G5ZhBmJkONcrnoOd75Atdz_5XP0k0LEYtyQWYfesDHZP_-XVJdwieCoqhOrm6-lEa2SpiGYXOpIOCA:ad426c65d6cf697e
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
