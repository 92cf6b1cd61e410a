# rye:signed:2026-11-23T01:09:46Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:q6on7jBfvsUb75FI5uvtzgnkOUFe6Srhg3_FniABi7tkGF-H776zQ1Bv0iovKp8s6ZFvylCk5o5L8Tl6HeRECA:0159613eef788f1a
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
