"""remotes.yaml: read with its problems located, and only when signed."""

import pytest

from ryecore import SigningKey
from ryecore.errors import ConfigError, InputError, UnsignedItem
from tests.workspace import Workspace

KEY = SigningKey.generate().public
PEM = "".join(f"      {line}\n" for line in KEY.pem.decode().splitlines())
GPU = f"remotes:\n  gpu:\n    url: https://gpu.example:8443/rye/\n    node_key: |\n{PEM}"


def write(workspace: Workspace, text: str, **options: object) -> None:
    workspace.write("config/remotes/remotes.yaml", text, **options)  # type: ignore[arg-type]


def test_a_remote_has_its_defaults(workspace: Workspace) -> None:
    write(workspace, GPU)
    (found,) = workspace.open().remotes.list()
    assert (found.name, found.url, found.key) == ("gpu", "https://gpu.example:8443/rye", KEY)
    assert found.settings.timeout_s == 30
    assert found.settings.push.include == ()


def test_a_target_is_what_its_entry_says(workspace: Workspace) -> None:
    cluster = "  big: {ray: auto}\n"
    queue = "  batch: {queue: 'postgresql://db.example/rye'}\n"
    write(workspace, f"default: batch\n{GPU}{cluster}{queue}")
    remotes = workspace.open().remotes
    kinds = {one: remotes.kind_of(one) for one in ("local", "remote", "remote:gpu", "remote:big")}
    assert kinds == {"local": "local", "remote": "queue", "remote:gpu": "node", "remote:big": "ray"}
    with pytest.raises(InputError, match="no remote 'bigg'"):
        remotes.kind_of("remote:bigg")


def test_user_space_and_project_are_merged(workspace: Workspace) -> None:
    write(workspace, GPU, space="user")
    write(workspace, 'remotes: {gpu: {push: {include: ["src/**"]}}}')
    (found,) = workspace.open().remotes.list()
    assert found.url == "https://gpu.example:8443/rye"
    assert found.settings.push.include == ("src/**",)


def test_an_unsigned_file_is_refused_and_so_is_a_key_that_only_the_project_trusts(
    workspace: Workspace,
) -> None:
    write(workspace, GPU, sign=False)
    with pytest.raises(UnsignedItem):
        workspace.open().remotes.list()


@pytest.mark.parametrize(
    ("text", "line", "place"),
    [
        (GPU.replace("https:", "ftp:"), 3, "remotes.gpu.url"),
        (GPU.replace("https:", "http:"), 3, "remotes.gpu.url"),
        (GPU.replace("//gpu", "//me:pw@gpu"), 3, "remotes.gpu.url"),
        (GPU.replace("PUBLIC", "PRIVATE"), 4, "remotes.gpu.node_key"),
        (GPU.replace("gpu:", "g p u:"), 2, "remotes.g p u"),
        (GPU + "    timeout_s: 0\n", 8, "remotes.gpu.timeout_s"),
        (GPU + "    timeuot_s: 10\n", 8, "remotes.gpu.timeuot_s"),
        (GPU + '    push: {include: ["../x"]}\n', 8, "remotes.gpu.push.include[0]"),
        (GPU + "    secrets: [A B]\n", 8, "remotes.gpu.secrets[0]"),
        (GPU + "default: gpx\n", 8, "default"),
        (GPU + "    ray: auto\n", 2, "remotes.gpu"),
        (GPU + "    resources: {GPU: 1}\n", 8, "remotes.gpu.resources"),
        ("remotes: {gpu: {timeout_s: 9}}\n", 1, "remotes.gpu"),
        ("remotes: {gpu: {queue: 'postgresql://me:pw@db/rye'}}\n", 1, "remotes.gpu.queue"),
        ("remotes: {gpu: {queue: 'postgresql://db/rye?password=pw'}}\n", 1, "remotes.gpu.queue"),
        ("remotes: {gpu: {ray: 'head:10001'}}\n", 1, "remotes.gpu.ray"),
        ("remotes: {gpu: {ray: auto, secrets: [TOKEN]}}\n", 1, "remotes.gpu.secrets"),
        ("remotes: {gpu: {ray: auto, priority: 2}}\n", 1, "remotes.gpu.priority"),
        (GPU + "    travels: true\n", 8, "remotes.gpu.travels"),
        ("remotes: {gpu: {ray: auto, resources: {GPU: -1}}}\n", 1, "remotes.gpu.resources"),
        ("remotes: {gpu: {ray: auto, resources: {GPU: 1.5}}}\n", 1, "remotes.gpu.resources"),
    ],
)
def test_a_problem_is_located(workspace: Workspace, text: str, line: int, place: str) -> None:
    write(workspace, text)
    with pytest.raises(ConfigError) as caught:
        workspace.open().remotes.list()
    (problem,) = caught.value.problems
    # The signature is the file's first line.
    assert (problem.line, str(problem)) == (line + 1, str(problem))
    assert f": {place} " in str(problem)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8443", "http://[::1]:1", "http://localhost:1"])
def test_plain_http_is_for_this_machine(workspace: Workspace, url: str) -> None:
    write(workspace, GPU.replace("https://gpu.example:8443/rye/", url))
    assert workspace.open().remotes.list()[0].url == url


def test_plain_http_beyond_this_machine_has_to_be_named(workspace: Workspace) -> None:
    write(workspace, GPU.replace("https:", "http:") + "    plain_http: true\n")
    assert workspace.open().remotes.list()[0].url == "http://gpu.example:8443/rye"


@pytest.mark.anyio
async def test_an_unknown_remote_is_named_with_a_guess(workspace: Workspace) -> None:
    async with workspace.open() as rye:
        with pytest.raises(InputError, match="There are no remotes"):
            await rye.remotes.plan("remote")
        write(workspace, GPU)
        with pytest.raises(InputError, match="Did you mean 'gpu'"):
            await rye.remotes.plan("remote:gpo")
        assert await rye.remotes.plan("remote") == await rye.remotes.plan("remote:gpu")
