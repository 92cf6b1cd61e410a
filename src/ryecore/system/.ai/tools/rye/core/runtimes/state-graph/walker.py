# rye:signed:2026-11-23T01:23:11Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:WF64gyp5Rn6BUcyD5eOo5-KVDqZ3arqmHvTwOQh4UxsvVPYgV3vaR9zBo7wK0FmJ6Lx3yWdfOrNK6d03M8yhCQ:0b0180518c45e627
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
