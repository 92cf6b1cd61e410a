"""A thread's transcript: records, deltas and checkpoints, beside bare writes of prebuilt lines."""

import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ryecore import SigningKey
from ryecore.state.transcript import Transcript
from ryecore.state.transcript_check import verify_transcript
from tests.benchmarks.harness import compare, report

_THREAD = "acme/research-1739820456"
_PAYLOAD = {"turn": 1, "call_id": "c1", "tool": "rye_bash", "input": {"command": "ls -la"}}
_RECORD = {
    "timestamp": 1763796896.104512,
    "thread_id": _THREAD,
    "event_type": "tool_call_start",
    "payload": _PAYLOAD,
}
_LINE = json.dumps(_RECORD, separators=(",", ":")).encode() + b"\n"
_A_TURN = 8
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND


def run() -> None:
    """Print the figures."""
    with tempfile.TemporaryDirectory() as folder:
        _measure(Path(folder))


def _measure(folder: Path) -> None:
    key = SigningKey.generate()
    bare = os.open(folder / "bare", _FLAGS, 0o600)
    path = folder / "process.jsonl"
    transcript = Transcript.create(path, _THREAD, key)

    def several(count: int) -> Callable[[], None]:
        def kept() -> None:
            for _ in range(count):
                transcript.append("tool_call_start", _PAYLOAD)
            transcript.commit()

        return kept

    goal = "<= 3 us an event in process durability"
    compare(
        f"transcript, {_A_TURN} records and their commit",
        several(_A_TURN),
        lambda: os.write(bare, _LINE * _A_TURN),
        goal=f"{goal}: {3 * _A_TURN} us",
        calls=500,
    )
    compare(
        "transcript, one record and its commit",
        several(1),
        lambda: os.write(bare, _LINE),
        goal="what an intent before an effect costs",
        calls=2_000,
    )
    pieces: list[str] = []
    compare(
        "transcript, one streamed delta",
        lambda: transcript.delta("word "),
        lambda: pieces.append("word "),
        goal="well under 1 us",
        calls=10_000,
    )
    said = b"x" * 300

    def sign_and_write() -> None:
        os.write(bare, said + key.sign(said))

    compare(
        "transcript, one checkpoint",
        lambda: transcript.checkpoint(1),
        sign_and_write,
        goal="<= 45 us, of which the signature is most",
        calls=300,
    )
    transcript.close()
    begun = time.perf_counter()
    proved = verify_transcript(path, _THREAD, key.public, None, ended=True)
    took_s = time.perf_counter() - begun
    report("transcript, proved", proved.size_bytes / took_s / 1e6, "MB/s", ok=proved.ok)
    os.close(bare)


if __name__ == "__main__":
    run()
