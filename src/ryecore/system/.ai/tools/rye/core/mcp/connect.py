# rye:signed:2026-11-23T13:17:48Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:0vnunFb__uhRG3GAjbZE4HK_mlfoxoGMw1rJF9WcnAPcDVxwAvj_glWo4Dq7W-WTymWS-f2Tej9xkhjcS9lPAQ:a43bccb664db34f6
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
