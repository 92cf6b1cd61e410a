"""Says one sentence."""

__executor_id__ = "rye/core/runtimes/python/function"


def execute(params, project_path):
    return "This is a simple text response for testing."
