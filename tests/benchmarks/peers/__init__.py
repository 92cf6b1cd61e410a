"""The same script for other frameworks: `python -m tests.benchmarks.peers --python PATH ...`.

Each module here gives one framework a fake model in the same process, with tracing off:

- `runner(turns)`: a coroutine function that runs an agent once. The model calls one tool in each of
  its turns, and then answers with `ANSWER`, which is returned.
- `streamer(deltas)`: one that runs an agent whose model answers in so many pieces of text, reads
  the framework's own events, and returns how many pieces it saw.
- `kept_runner(turns)`: an asynchronous context manager that gives such a coroutine function as
  `runner` does, with the framework's own persistence on, as its documentation shows it, in a
  database or folder that goes with it. Each run is a session of its own.

They are run by the Python that has the framework, and import nothing of ryecore, its own module
aside.
"""
