# rye:signed:2026-11-28T07:36:48Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:flBX_wIM2lj7SdnwgSb7zO0HioshceBfP5j5lPEwCXJjCrjXB0zaN7gymWvM7h5BkiYA7kSWFkkI2U1wpxXDAg:d7428a5352481d0d
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
