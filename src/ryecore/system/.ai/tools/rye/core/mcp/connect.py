# rye:signed:2026-11-23T01:32:30Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:_5iV9DvFkD09hMDilb8HPHFoIkKmW3jwZUq2e51uE3SoRUcjYKIKcdXo5ZbYeHBMm0c2gDNx2oBXxlwhAmtgAg:a5199df06c86d42c
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
