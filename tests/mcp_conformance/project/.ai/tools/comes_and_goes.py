"""A tool that another one takes away."""

__executor_id__ = "rye/core/runtimes/python/function"


def execute(params, project_path):
    return "I am here."
