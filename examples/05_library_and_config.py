"""A tool of two files, with layered configuration: each file that it can import is verified."""

import tempfile
from pathlib import Path

from ryecore import IntegrityError, SyncRye

FILES = {
    ".ai/tools/acme/price/__init__.py": "",  # marks the folder that the tool may import from
    ".ai/tools/acme/price/money.py": """\
def with_tax(amount, percent):
    return round(amount * (1 + percent / 100), 2)
""",
    ".ai/tools/acme/price/price.py": '''\
"""The price with tax."""

__version__ = "1.0.0"
__executor_id__ = "rye/core/runtimes/python/function"
CONFIG_RESOLVE = {"path": "acme/tax.yaml", "mode": "deep_merge"}


def execute(params, project_path):
    from money import with_tax

    return {"price": with_tax(params["amount"], params["resolved_config"]["percent"])}
''',
    ".ai/config/acme/tax.yaml": "percent: 20\n",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project, user = Path(folder, "shop"), Path(folder, "home")
        for name, content in FILES.items():
            path = project / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)

        with SyncRye.open(project, user_space=user) as rye:
            rye.keys.generate("the example")
            rye.sign("tool:acme/price/*")

            print("1. The tool, its library and its configuration\n")
            done = rye.execute("tool:acme/price/price", {"amount": 10}, trace=True)
            print(done)

            print("\n2. The library was changed, so the tool doesn't run\n")
            money = project / ".ai/tools/acme/price/money.py"
            money.write_text(money.read_text().replace("1 +", "2 +"))
            try:
                rye.execute("tool:acme/price/price", {"amount": 10})
            except IntegrityError as refusal:
                print(f"  {refusal.message}\n  next: {refusal.next_step}")


if __name__ == "__main__":
    main()
