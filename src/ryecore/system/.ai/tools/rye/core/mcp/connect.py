# rye:signed:2026-11-23T07:03:03Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:h_D82wtPr0lZ-mLJASif7FB8P7Z7hTIyl3kDarFBM_MJuPxm_awhW5bhFQ_LQ241d-ZvyxM7orV7kflphnIfDw:dc9821d4799304d7
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
