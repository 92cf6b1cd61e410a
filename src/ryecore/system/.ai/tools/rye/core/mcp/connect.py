# rye:signed:2026-11-22T18:27:38Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:l1eIYqmFW08LbTs0UD4owkWEfMB_0WGnTYhDxwiICdPuVSU2Sg7t5H4wMrTkY0EutNCZ8QiXSKBFyLdxoX_HBg:85713489a27bc22b
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
