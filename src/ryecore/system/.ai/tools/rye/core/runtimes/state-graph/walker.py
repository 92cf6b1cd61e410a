# rye:signed:2026-11-23T00:47:25Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:35_JpQVS16F--MT_-dIkSDGGQev16HojNbS5-vOy922HByAsFFtVZe9R99REsMxEl12ChLcu9GmTmqkkY2MNCA:bf51294c330ae91b
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
