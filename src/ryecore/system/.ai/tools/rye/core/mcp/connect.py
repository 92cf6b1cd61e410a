# rye:signed:2026-11-28T13:35:45Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:nGfoFYAUdC6lUPeOqMbOAxjtU0D7uKJTTa8ouL-r--rzY3NMsPGA3XB-c2tA5IUGd2-nIDXTJXB8UELkzbXTBg:6785ae38151bd2b9
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
