# rye:signed:2026-11-22T15:48:37Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:tPNNNJN2VYR8_cAcNAIo4G-TEsnUqYrLc14bkNADLIoLbTVk2MAXXGBAf0cfiDzxJyqp20Q80GQ4FrktFFrSBQ:d9c159d0464212a5
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
