# rye:signed:2026-11-23T00:01:49Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:Rgj2TT5b1fH_PCf_3XcEj74mezR_QYhesyoY0juFwpRqqzgaAUgyEC0uDHSZ9H-LU2EtyFiq_u7K-Xdrh0e8Ag:803b0db9e645e763
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
