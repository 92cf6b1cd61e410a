"""The same script for other frameworks: `python -m tests.benchmarks.peers --python PATH ...`.

Each module here gives one framework a fake model in the same process, with tracing off:

- `runner(turns)`: a coroutine function that runs an agent once. The model calls one tool in each of
  its turns, and then answers with `ANSWER`, which is returned.
- `streamer(deltas)`: one that runs an agent whose model answers in so many pieces of text, reads
  the framework's own events, and returns how many pieces it saw.

They are run by the Python that has the framework, and import nothing of ryecore, its own module
aside.
"""
