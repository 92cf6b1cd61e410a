"""Computes for some seconds."""

import time

__executor_id__ = "rye/core/runtimes/python/function"
__task_support__ = "optional"
CONFIG_SCHEMA = {
    "type": "object",
    "properties": {
        "seconds": {"type": "number", "minimum": 0, "maximum": 60},
        "label": {"type": "string"},
    },
    "required": ["seconds"],
}


def execute(params, project_path):
    time.sleep(params["seconds"])
    return f"computed for {params['seconds']} s"
