# rye:signed:2026-11-22T14:38:42Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:OkpY9J5Qqnj-1kXFE_0Zv0gw0BSPrd4_qr55NS9dtjTKL1VMiV5Kp0V-UzrLkVDemiqtX05Qq81Yc8omeHlmAw:00876411c3356ad7
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
