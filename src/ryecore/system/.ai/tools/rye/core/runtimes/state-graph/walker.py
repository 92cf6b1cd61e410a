# rye:signed:2026-11-23T01:09:46Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:_2YX0Ey7VWtXZ4JaMjjs0cecVzK1955JDpYcWAqJHy8dzPCdkWlKBRN5CczQVY0vd0C0PobhHDRBX_k5sUm6AA:0159613eef788f1a
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
