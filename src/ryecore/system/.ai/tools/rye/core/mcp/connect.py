# rye:signed:2026-11-22T19:52:33Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:_rcU3WpKsFZqEZ18UMElNg3EUJsUKbH7b8_jd5Y3-eL2RrHepVZcg869Jgnks2_BIO3JmGc8IeTxOpjNhwk1Bg:3e0bbfac53a60949
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
