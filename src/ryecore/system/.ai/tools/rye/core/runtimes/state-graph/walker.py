# rye:signed:2026-11-22T10:47:38Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:NXaCuqxDtcDS7KAMXo80iQQTF7Lohs37HE5dfrchNn1JHRL_G3NxT8jEvL6YCU0MhAWx02r5WK2kkzwPsBujCQ:262a65692183577b
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
