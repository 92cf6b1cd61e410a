# rye:signed:2026-11-22T15:29:05Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:5Bb7mEUUnMjW-Ovdg_JD4D4bVKMTT0AKn8rAxd8HyvSIPpKKpRqkQ4OisARBSWHL7Z7zh7v6et39e7-zsrHIBA:71d47e616f62c0f7
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
