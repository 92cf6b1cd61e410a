# rye:signed:2026-11-22T23:52:09Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:g9t3Bl8qK7REKoe0h9-XAfs_njKbMmMYLorOuS2qD30n1kYriw3B8Rk9owtkEWnAc62O4RLVSYQvBGrQVAxwAw:b05fe7542ab76a7c
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
