# rye:signed:2026-11-22T14:20:31Z:3a60091d3578c686cf2ba1ea44be052c45f2b6606d506ca1f11a20831f0721e2:RnjOdmfMClsHyoz41RJtfbwRGsXaxm4hDRa2DzJ3mqpicWib8e2Bjpz0PtT0Nt_Cs4Lv3v0SC2ERaoFTWWNcCg:9efc1bb77beeb2bf
"""Calls a tool of an MCP server, or lists its tools. The mcp runtimes start it, with parameters on
standard input; what it does is ryecore.mcp_client.connector.
"""

import sys

from ryecore.mcp_client.connector import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
