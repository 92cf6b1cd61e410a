# rye:signed:2026-11-22T07:39:57Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:bWcHiLUw_jh9GrLuH2VNZOEGezF72UrVlUqSJ1Weu5Ddv-C7tt6M8d4oiSOuZ-zh3ib2JxIMpCRNy4JQ_ggYCw:27473b6bf90a4eca
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
