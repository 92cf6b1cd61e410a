# rye:signed:2026-11-22T02:29:59Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:aPHXYbycR7SgG2FYcQkdVPkuS5-T0ziMp6GDTDBo-5aaX6QVGpwilLvGDTE_7A9neyyHaRMeqTPATIabbW0hDw:ed5f52b2ced4ead9
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
