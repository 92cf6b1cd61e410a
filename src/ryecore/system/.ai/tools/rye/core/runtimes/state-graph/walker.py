# rye:signed:2026-11-22T15:29:05Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:4E9s92r0Zo3Y49UH4kaVoSgDy6tmZNTeDbc7tU_Oj7uBmutyImEmIFaheyUkMySh6mMUY9REGbS7W0h2K9_hCQ:71d47e616f62c0f7
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
