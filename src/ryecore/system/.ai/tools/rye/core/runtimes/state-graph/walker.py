# rye:signed:2026-11-22T14:20:31Z:84fc7d31281e29da391e82c13b6e813298e1a5aa17f8637c50ca74e0db2727ad:9Kbb7PWA6_cvI0-Rn9V3IpWrcOHCjQ14xxjsMFO4s-U7EGoshwB5kqyJBUgTZd0ZpODMgwSMa_t_dOFVgxzfCA:9efc1bb77beeb2bf
"""Walks a graph. The state-graph runtime starts it, with the call on standard input; what it does is
ryecore.walker.
"""

import sys

from ryecore.walker import main

if __name__ == "__main__":
    sys.exit(main())
