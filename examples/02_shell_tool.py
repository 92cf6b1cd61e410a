"""A tool in shell: `$1` is the project's folder, the parameters come as JSON on standard input."""

import tempfile
from pathlib import Path

from ryecore import SyncRye
from ryecore.errors import InvalidParameters

TOOL = """\
#!/usr/bin/env bash
# __version__ = "1.0.0"
# __executor_id__ = "rye/core/runtimes/bash/bash"
# __tool_description__ = "Count the files of a folder, by extension."
# CONFIG_SCHEMA = {
#     "type": "object",
#     "properties": {"folder": {"type": "string", "default": "."}},
#     "additionalProperties": false
# }
set -euo pipefail
cd "$1"
folder=$(sed -E 's/.*"folder": *"([^"]*)".*/\\1/')
find "./$folder" -type f -name '*.*' | sed 's/.*\\.//' | sort | uniq -c
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "shop")
        tool = project / ".ai/tools/acme/count.sh"
        tool.parent.mkdir(parents=True)
        tool.write_text(TOOL)
        for name in ("a.txt", "b.txt", "c.csv"):
            (project / name).touch()

        with SyncRye.open(project, user_space=Path(folder, "home")) as rye:
            rye.keys.generate("the example")
            rye.sign("tool:acme/*")

            print("1. What it prints is the result\n")
            print(rye.execute("tool:acme/count"))

            print("\n2. What its schema doesn't name is refused before anything starts\n")
            try:
                rye.execute("tool:acme/count", {"folder": 7, "command": "rm -r ."})
            except InvalidParameters as refusal:
                print("\n".join(f"  {failure}" for failure in refusal.failures))


if __name__ == "__main__":
    main()
