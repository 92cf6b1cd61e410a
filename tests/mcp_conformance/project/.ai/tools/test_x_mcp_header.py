"""Has a parameter that clients repeat in a header."""

__executor_id__ = "rye/core/runtimes/python/function"
CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"region": {"type": "string", "x-mcp-header": "Region"}},
    "required": ["region"],
}


def execute(params, project_path):
    return f"The region is {params.get('region')}."
