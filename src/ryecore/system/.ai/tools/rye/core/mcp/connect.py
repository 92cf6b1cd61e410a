# rye:signed:2026-11-22T18:32:50Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:AoR7Z6A4oo-hLn3m0LHrH7bSU9oerIh89zfF51r-u-tnX0n0NC-vN1DdXff03dZWxoHySoCCj2I_BMyQNsFxAA:05af8069d5b816d9
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
