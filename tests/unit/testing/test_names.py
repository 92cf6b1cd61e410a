import subprocess
import sys


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
