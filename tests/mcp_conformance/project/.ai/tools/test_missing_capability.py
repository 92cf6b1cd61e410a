"""Can't do without the model of its caller."""

__executor_id__ = "rye/core/runtimes/python/function"
__may_ask__ = ["sample"]
__must_ask__ = ["sample"]


def execute(params, project_path):
    return "The caller has a model."
