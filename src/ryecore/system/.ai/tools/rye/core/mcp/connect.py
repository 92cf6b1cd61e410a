# rye:signed:2026-11-23T00:24:02Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:yyTjQ2SNITQYBGp7OztoPoJxUKV0wsIof6IXjk8wIfoF6rFSCQX1U6CMJh4FZyLQim_ZsaCdH-_BqaBNorhZBg:9970cceda93713ce
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
