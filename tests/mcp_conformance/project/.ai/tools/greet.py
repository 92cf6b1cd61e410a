"""Greets somebody."""

__executor_id__ = "rye/core/runtimes/python/function"
CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}},
    "required": ["name"],
}


def execute(params, project_path):
    return f"Hello, {params['name']}!"
