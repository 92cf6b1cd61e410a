# rye:signed:2026-11-23T00:14:48Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:IXtgoUvr_hU2VRHJMi3f5aGxoFoYkPn2vtb8Cq__JXeuCafpne_dpXTz92J4NKFchqI1BUncfdPRFVsRYMoOAw:1cfe0c4e124e9b9f
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
