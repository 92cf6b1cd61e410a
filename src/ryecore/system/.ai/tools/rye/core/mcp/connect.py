# rye:signed:2026-11-22T07:48:48Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:NmiNA8V5ec2ESxb1IRJ0UUUMg3lBfyLcUfwI21hfCBeNat3YbvfQWEA1jJu9ed_mcjcjn_FA6heqBhL4Pyx-Aw:579955d980d16c72
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
