"""Takes long enough that the server has its client poll for the result."""

import time

__executor_id__ = "rye/core/runtimes/python/function"


def execute(params, project_path):
    time.sleep(1.5)
    return "The reconnection was a success."
