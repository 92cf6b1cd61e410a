# rye:signed:2026-11-22T14:47:57Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:H8KMHKeQDzUXnALKtiWnQK9vH07UV8zuKgB6kzwWQRIZSiFQz_Y1o-8vCdxNdbdnSOai9uVtq8jNrcVMSHcYBA:aa8e5bd2f65dca66
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
