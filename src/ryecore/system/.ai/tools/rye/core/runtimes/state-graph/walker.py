# rye:signed:2026-11-22T15:04:05Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:_VDS8llIvQyhZxdGdP3JgSLwn4kSgL-3DDpwyV-Z9t9Jci6dL-pYBVIoVcAdtwlrCg3KG8JUUBkJSgUwyWJaAA:34aea05d4c7fcad3
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
