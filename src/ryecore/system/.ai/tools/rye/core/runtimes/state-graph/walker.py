# rye:signed:2026-11-23T00:01:49Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:eFJrk9YldXxDq8L-MLLrXZTikpwX2gTxAMHPIDyprL-hEtkX7HgoYGljt5ZJexQwTX6nLpUqlZXXKGhH6zcGCA:803b0db9e645e763
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
