# rye:signed:2026-11-23T06:14:33Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:IGVUeJQ3Gm2ecwcSCUozBsCoGXh1es3qyOvNUjeh5M3VtIfP4OZm_lwrWDCuSnCbVUXXg95GDL1EAXG4xaPcBA:0cc2fd26c5e4a23d
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
