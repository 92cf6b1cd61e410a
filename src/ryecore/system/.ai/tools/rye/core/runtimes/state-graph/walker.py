# rye:signed:2026-11-22T18:36:24Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:O3fS_Z52zn4CpZlwc5gJkc_dM7MVF2CJs5QaOtBdFi2_ulsrZ-tNVSXo6lZYc37U8VIkAYj8yzL6C93aVwG1Cg:8e14400465dac0ca
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
