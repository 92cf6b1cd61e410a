# rye:signed:2026-11-22T14:08:28Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:H8EOZ6FWvevi3Khp0kirSRKqy4_T9W7RSA3hM1iioJGyDYx761tn62apLQpu-9gdqXB6mxk-ngLZNI7yksZZDA:6f9391e1faf1f962
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
