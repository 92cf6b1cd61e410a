# rye:signed:2026-11-23T02:00:08Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:a4ZxW1W1c3TsEeqgzqtGTo8TOwmbHDXZ4GthbJgP32FpRKEdO85-sNNFQglPlR2sTL35GA78MX1x1CqzWdfSAQ:902ac92e49e49785
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
