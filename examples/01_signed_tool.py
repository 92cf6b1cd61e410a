"""Sign a tool, run it through its verified chain, change a byte, see the refusal."""

import tempfile
from pathlib import Path

from ryecore import IntegrityError, SyncRye

TOOL = """\
__version__ = "1.0.0"
__executor_id__ = "rye/core/runtimes/python/function"
__tool_description__ = "Count the rows of a CSV file and add up a column."

CONFIG_SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "column": {"type": "string", "default": "amount"}},
    "required": ["path"],
}


def execute(params, project_path):
    import csv, os

    with open(os.path.join(project_path, params["path"])) as file:
        rows = list(csv.DictReader(file))
    return {"rows": len(rows), "total": sum(float(row[params["column"]]) for row in rows)}
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project, user = Path(folder, "shop"), Path(folder, "home")
        tool = project / ".ai/tools/acme/csv/summarise.py"
        tool.parent.mkdir(parents=True)
        tool.write_text(TOOL)
        (project / "sales.csv").write_text("item,amount\ntea,3.50\ncake,4.25\n")

        with SyncRye.open(project, user_space=user) as rye:
            print("1. A key, and a signature\n")
            key = rye.keys.generate("the demo")
            signed = rye.sign("tool:acme/csv/summarise").signed[0]
            print(f"  key {key.public.fingerprint}, signed {signed.relative}\n")

            print("2. The tool, through its verified chain, with the trace\n")
            print(rye.execute("tool:acme/csv/summarise", {"path": "sales.csv"}, trace=True))

            print("\n3. A tool that comes with ryecore\n")
            print(rye.execute("tool:rye/bash", {"command": "echo hi from $(basename $PWD)"}))

            print("\n4. One byte changed: refused, and nothing ran\n")
            tool.write_text(tool.read_text().replace("float(", "float (", 1))
            try:
                rye.execute("tool:acme/csv/summarise", {"path": "sales.csv"})
            except IntegrityError as refusal:
                print(f"  {refusal.message}\n  next: {refusal.next_step}")


if __name__ == "__main__":
    main()
