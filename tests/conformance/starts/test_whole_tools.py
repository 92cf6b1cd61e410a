"""Tools whose own file is the matter: what its body does, and what stands nowhere in it."""

from collections.abc import Iterator
from itertools import product

import pytest

from tests.conformance.starts.starting import VARIANTS, Starts
from tests.matrix import IS_SOAK, in_turn
from tests.workspace import FUNCTION, SCRIPT, Workspace

# Each is a whole tool; as a function it is called, as a script its body is all.
WARM = {
    "no execute": "x = 1",
    "raises in its body": "import json\ndef f():\n    raise ValueError('body')\nf()",
    "raises once it is imported": "import json\nimport nowhere_at_all",
    "exits in its body": "import sys\nsys.exit(4)",
    "exits in its body with a text": "raise SystemExit('enough')",
    "prints in its body": "import json\nprint(json.dumps({'body': True}))",
    "another signature": "def execute():\n    return 1",
    "is no function": "execute = 3",
    "asynchronous": "import asyncio\nasync def execute(params, project):\n"
    "    await asyncio.sleep(0)\n    return asyncio.get_running_loop().is_running()",
    "asynchronous and failing": "import asyncio\nasync def execute(params, project):\n"
    "    raise asyncio.TimeoutError('late')",
    "asynchronous with a program": "import asyncio, sys\nasync def execute(params, project):\n"
    "    p = await asyncio.create_subprocess_exec('echo', 'hi', stdout=-1)\n"
    "    return (await p.communicate())[0].decode()",
    "many processes": "import multiprocessing, sys, os\ndef execute(params, project):\n"
    "    found = []\n    for way in ('fork', 'spawn', 'forkserver'):\n"
    "        with multiprocessing.get_context(way).Pool(1) as pool:\n"
    "            found.append(pool.map(abs, [-1, -2]))\n    return found\n"
    "if __name__ == '__main__':\n    print(execute({}, ''))",
    "programs": "import subprocess\ndef execute(params, project):\n"
    "    done = subprocess.run(['sh', '-c', 'cat; exit 3'], input='x', text=True,\n"
    "                          capture_output=True)\n"
    "    return [done.stdout, done.returncode]\n"
    "if __name__ == '__main__':\n    print(execute({}, ''))",
    "secrets": "import os, json\ndef execute(params, project):\n"
    "    return [k for k in os.environ if 'SECRET' in k or 'API_KEY' in k]\n"
    "if __name__ == '__main__':\n    print(json.dumps(execute({}, '')))",
    "its own source": "import inspect\ndef execute(params, project):\n"
    "    return [inspect.getsource(execute), __file__[-7:], __name__, __spec__ is None]\n"
    "if __name__ == '__main__':\n    print(execute({}, ''))",
}
# What an interpreter says before any call could begin, so that no template is made of it.
COLD = {
    "a return of nothing": "x = 1\nreturn 2",
    "a loop that is none": "def execute(params, project):\n    break",
    "a warning of the compiler": "def execute(params, project):\n    return 1 is 1",
}


def _cells() -> list[tuple[str, str]]:
    """Return each tool with a variant that its text is for; in the soak, with both."""
    if IS_SOAK:
        return list(product(WARM, VARIANTS))
    only = [name for name, text in WARM.items() if "execute" in text and "__main__" not in text]
    return [(name, "function") for name in only] + in_turn(
        [name for name in WARM if name not in only], VARIANTS
    )


@pytest.fixture(scope="module")
def starts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Starts]:
    workspace = Workspace(tmp_path_factory.mktemp("tools"))
    workspace.environ |= {"MY_SECRET": "hush", "OPENAI_API_KEY": "hush"}
    with Starts(workspace) as made:
        yield made


def made(starts: Starts, text: str, variant: str) -> str:
    executor = {"function": FUNCTION, "script": SCRIPT}[variant]
    return starts.workspace.python("acme/whole", text, executor_id=executor)


@pytest.mark.parametrize(("name", "variant"), _cells())
def test_a_tool_does_the_same(starts: Starts, name: str, variant: str) -> None:
    cold, warm = starts.both(made(starts, WARM[name], variant), {})
    assert warm == cold
    assert "hush" not in str(warm)


@pytest.mark.parametrize(("name", "variant"), in_turn([*COLD], VARIANTS))
def test_what_cannot_start_warm_starts_cold_each_time(
    starts: Starts, name: str, variant: str
) -> None:
    ref = made(starts, COLD[name], variant)
    cold = starts.cold(ref, {})
    for _ in range(4):
        done = starts.rye.execute(ref, {}, trace=True)
        assert (done.status, done.data, done.error) == (cold.status, cold.data, cold.error)
        assert str(done.trace[-1]["start"]) == "cold"
