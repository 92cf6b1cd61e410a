# rye:signed:2026-11-22T01:22:09Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:B-gz-TzQLkTM1z-1QBJNSZT7u91OOQMhFfRDxdLu6dAp8kanWZ-o5XX6KhBQSq0WBDAadvudMedFqzE01kIGAw:ee9cfdad9a9671f7
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
