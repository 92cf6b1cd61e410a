# rye:signed:2026-11-22T14:08:28Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:7CQ9cKilMc4HqbwndfoILqQMAbBrQaqsXssOykjYiD2hRM5JLj0OwSCHeTEvgL3DTNBXJgXUHLKyHR-5tY3OBg:6f9391e1faf1f962
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
