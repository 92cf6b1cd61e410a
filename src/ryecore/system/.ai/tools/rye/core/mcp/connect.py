# rye:signed:2026-11-23T00:14:48Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:gTs3MiL7Lxk52wWF7VfqBdUpTm_PVXrJ7xtIEeOKiNjZ7R6YjiEzG1PN9YSglps3ecAowiW8QFWn_44Xgd7TCw:1cfe0c4e124e9b9f
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
