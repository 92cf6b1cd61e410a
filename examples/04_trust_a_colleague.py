"""Somebody else's tool: refused, then trusted, then refused again once the key is revoked."""

import tempfile
from pathlib import Path

from ryecore import IntegrityError, SigningKey, SyncRye, sign_item

TOOL = '''\
"""Greet somebody."""

__version__ = "1.0.0"
__executor_id__ = "rye/core/runtimes/python/function"


def execute(params, project_path):
    return {"greeting": f"Hello, {params['name']}"}
'''


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        tool = Path(folder, "clone/.ai/tools/acme/greet.py")
        tool.parent.mkdir(parents=True)
        tool.write_text(TOOL)
        grace = SigningKey.generate()  # on a colleague's machine
        sign_item(tool, grace)

        with SyncRye.open(Path(folder, "clone"), user_space=Path(folder, "home")) as rye:
            rye.keys.generate("me")

            def attempt(title: str) -> None:
                print(f"{title}\n")
                try:
                    print(f"  {rye.execute('tool:acme/greet', {'name': 'Ada'}).data}\n")
                except IntegrityError as refusal:
                    print(f"  {type(refusal).__name__}: {refusal.next_step}\n")

            attempt("1. A key that nobody knows")
            rye.keys.trust(grace.public, "Grace")
            attempt("2. Trusted: a key file in my user space says so, signed by my own key")
            rye.keys.trust(grace.public, "Grace", revoked=True)
            attempt("3. Revoked: it takes effect at once")


if __name__ == "__main__":
    main()
