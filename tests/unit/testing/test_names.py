import importlib
import subprocess
import sys

import ryecore.testing


def test_each_name_comes_from_the_module_that_is_written_down() -> None:
    assert set(ryecore.testing._HOMES) == set(ryecore.testing.__all__)
    for name, home in ryecore.testing._HOMES.items():
        module = importlib.import_module(f"ryecore.testing.{home}")
        assert getattr(module, name) is getattr(ryecore.testing, name)
        assert name in module.__all__


def test_fakes_need_no_sdk() -> None:
    code = (
        "import sys; from ryecore.testing import ScriptedProvider, say\n"
        "print(sorted({'openai', 'anthropic', 'google', 'pydantic', 'httpx2', 'pytest'}"
        " & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )

    assert done.stdout.strip() == "[]"
