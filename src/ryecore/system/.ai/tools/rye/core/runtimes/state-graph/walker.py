# rye:signed:2026-11-22T14:49:37Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:Gi852I1Qdsf6hd2yROOKsCdJdrkzw2jRfPQt1YmzrfYmanEMRqI9HvFt1UETlFQryCFOnpRq19bUqXOr2zy7DQ:1bfa7cf7c8f33158
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
