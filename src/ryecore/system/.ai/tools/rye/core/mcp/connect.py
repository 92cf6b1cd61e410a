# rye:signed:2026-11-23T09:35:44Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:BI_2ZjB55ibcKvnAXeqnH3rr6VNYEFAbvwCYhM4rm5c7cIcd1PQMSges-K3p_sLO97ZC_dPqjhCCctSLJjjLDw:3f3dd60b3ba10fd5
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
