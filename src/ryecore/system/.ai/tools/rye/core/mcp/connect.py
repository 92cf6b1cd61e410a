# rye:signed:2026-11-22T01:49:29Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:MX9HST2kfKHm2o4TgiUPmlpanDc_vk-X-A8wVhF5OpMIR8i45oBb8ahBGKw25Z9FW_UfSje-604LQUi90rMTCg:3886248b17e84144
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
