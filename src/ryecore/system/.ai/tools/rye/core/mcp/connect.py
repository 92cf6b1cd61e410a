# rye:signed:2026-11-23T00:09:35Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:XGmt1XH8rQP2vKLwzi07lgzoWrDDQrdINhALApjJeVsHUJoJ620xkZ0AJgw9IwsJoocI3wUTb0N_vhegcGUdAg:b5b8fe5ca179654b
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
