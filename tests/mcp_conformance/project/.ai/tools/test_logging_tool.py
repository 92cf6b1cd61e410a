"""Says one thing while it runs."""

import json
import os

__executor_id__ = "rye/core/runtimes/python/function"
__reports__ = True


def execute(params, project_path):
    with open(os.environ["RYE_CHANNEL"], "w") as channel:
        channel.write(
            json.dumps({"log": "Some clients want to know this.", "level": "info"}) + "\n"
        )
    return "One message was logged."
