"""A directive: instructions for an agent, signed like code, its inputs checked and put in."""

import tempfile
from pathlib import Path

from ryecore import IntegrityError, SyncRye
from ryecore.errors import InvalidInputs

DIRECTIVE = """\
```xml
<directive name="release_notes" version="1.0.0">
  <metadata>
    <limits turns="8" spend="0.50"/>
    <permissions><execute><tool>rye/file-system/read</tool></execute></permissions>
  </metadata>
  <inputs>
    <input name="version" required="true">The version that is released.</input>
    <input name="items" type="integer" default="5">How many changes to name at most.</input>
  </inputs>
</directive>
```

Read CHANGELOG.md. Name the {input:items} most useful changes of version {input:version}.
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder, "shop")
        path = project / ".ai/directives/acme/release_notes.md"
        path.parent.mkdir(parents=True)
        path.write_text(DIRECTIVE)

        with SyncRye.open(project, user_space=Path(folder, "home")) as rye:
            rye.keys.generate("the example")
            rye.sign("directive:acme/release_notes")

            print("1. Its directions, for the agent that asked; no model is needed\n")
            print(rye.execute("directive:acme/release_notes", {"version": "2.1"}))

            print("\n2. What a thread of its own would run under\n")
            print(rye.execute("acme/release_notes", {"version": "2.1"}, dry_run=True))

            print("\n3. Inputs are checked, and every failure is listed\n")
            try:
                rye.execute("acme/release_notes", {"items": "five"})
            except InvalidInputs as refusal:
                print("  " + "\n  ".join(refusal.failures))

            print("\n4. An instruction was changed, so nobody follows it\n")
            path.write_text(path.read_text().replace("Read CHANGELOG", "Delete CHANGELOG"))
            try:
                rye.execute("acme/release_notes", {"version": "2.1"})
            except IntegrityError as refusal:
                print(f"  {refusal.message}")


if __name__ == "__main__":
    main()
