# rye:signed:2026-11-23T02:15:41Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:gufR_DRSrAa_Q35qiCl_0zUzydQ8IiRYv5F7p0x-11gyGMlaesl-FZTPYKa_XT1lLoVGWd3zH5cdbL9VZvPCDQ:0a383bb5ed1e2a55
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
