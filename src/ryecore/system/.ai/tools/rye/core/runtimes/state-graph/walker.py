# rye:signed:2026-11-23T00:09:35Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:-6fZFg2LGWkVF6-CRwW4O4LyMlJRly9t6pMKvL8ow7Akw1mmpc6HpUPQGvCWqpNRGJ2aNd0nU6Al_4ybbXLZDg:b5b8fe5ca179654b
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
