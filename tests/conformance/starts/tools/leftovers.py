# ruff: noqa: SIM115, PLW0603, B008
"""What a call of a tool leaves open at its end."""

import atexit
import json
import os
import sys
import threading
import weakref


def _open(params, name="kept", mode="w"):
    return open(os.path.join(params["place"], name), mode)


def note(params, text):
    """Say that something has happened, in a file, by itself: modules may be gone by then."""
    fd = os.open(params["place"] + "/notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, text.encode() + b"\n")
    os.close(fd)


def nothing(params):
    return None


def a_file_in_the_module(params):
    global kept
    kept = _open(params)
    kept.write("kept")


def a_file_in_a_circle(params):
    kept = [_open(params)]
    kept[0].write("kept")
    kept.append(kept)


def a_file_in_a_circle_of_the_module(params):
    global kept
    kept = [_open(params)]
    kept[0].write("kept")
    kept.append(kept)


def a_file_in_a_class(params):
    global Kept

    class Kept:
        file = _open(params)

    Kept.file.write("kept")


def a_file_in_a_module_of_the_interpreter(params):
    json.kept = _open(params)
    json.kept.write("kept")


def a_file_in_sys(params):
    sys.kept = _open(params)
    sys.kept.write("kept")


def a_file_in_builtins(params):
    import builtins

    builtins.kept = _open(params)
    builtins.kept.write("kept")


def a_file_in_a_new_module(params):
    import csv

    csv.kept = _open(params)
    csv.writer(csv.kept).writerow([1, 2])


def a_file_in_a_module_of_its_own(params):
    module = sys.modules["tide"] = type(sys)("tide")
    module.kept = _open(params)
    module.kept.write("kept")


def a_file_in_a_default(params):
    global keep

    def keep(file=_open(params)):
        return file

    keep().write("kept")


def a_file_in_a_closure_that_is_registered(params):
    file = _open(params)
    atexit.register(lambda: file.write("at last"))


def a_file_in_a_thread_local(params):
    global local
    local = threading.local()
    local.file = _open(params)
    local.file.write("kept")


def a_file_in_a_context(params):
    import contextvars

    variable = contextvars.ContextVar("kept")
    variable.set(_open(params))
    variable.get().write("kept")


def a_file_in_a_generator(params):
    def steps():
        with _open(params) as file:
            file.write("begun ")
            try:
                yield
            finally:
                file.write("ended")

    global going
    going = steps()
    next(going)


def a_generator_with_an_end(params):
    def steps():
        try:
            yield
        finally:
            note(params, "ended")

    global going
    going = steps()
    next(going)


def a_binary_file(params):
    global kept
    kept = _open(params, mode="wb")
    kept.write(b"\xffkept")


def a_file_read_and_written(params):
    global kept
    kept = _open(params, mode="w+b")
    kept.write(b"kept")
    kept.seek(1)


def a_file_with_a_descriptor_of_its_own(params):
    fd = os.open(params["place"] + "/kept", os.O_WRONLY | os.O_CREAT)
    sys.kept = os.fdopen(fd, "w")
    sys.kept.write("kept")


def a_file_whose_descriptor_is_closed(params):
    sys.kept = _open(params)
    sys.kept.write("kept")
    os.close(sys.kept.fileno())


def many_files_in_order(params):
    global kept
    kept = [open(params["place"] + "/kept", "a") for _ in range(5)]
    for number, file in enumerate(kept):
        file.write(str(number))


def a_packed_file(params):
    import gzip

    raw = _open(params, "packed", "wb")
    sys.kept = gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0)
    sys.kept.write(b"kept")


def an_archive(params):
    import zipfile

    global kept
    kept = zipfile.ZipFile(params["place"] + "/kept.zip", "w")
    kept.writestr(zipfile.ZipInfo("a"), "kept")


def a_mapping(params):
    import mmap

    with _open(params, mode="w+b") as file:
        file.write(b"....")
        file.flush()
        sys.kept = mmap.mmap(file.fileno(), 4)
        sys.kept[:4] = b"kept"


def a_database(params):
    import sqlite3

    sys.kept = sqlite3.connect(params["place"] + "/kept.db")
    sys.kept.execute("create table tide(height)")
    sys.kept.commit()
    sys.kept.execute("insert into tide values (1)")


def a_shelf(params):
    import dbm.dumb  # files of other kinds hold the time when they were made
    import shelve

    json.kept = shelve.Shelf(dbm.dumb.open(params["place"] + "/kept"))
    json.kept["tide"] = "high"


def a_log(params):
    import logging
    import logging.handlers

    target = logging.FileHandler(params["place"] + "/log")
    target.setFormatter(logging.Formatter("%(levelname)s %(name)s %(message)s %(threadName)s"))
    logging.basicConfig(handlers=[logging.handlers.MemoryHandler(100, target=target)])
    logging.warning("high tide")
    logging.getLogger("ebb").error("low tide", exc_info=ValueError("ebb"))


def a_log_on_the_screen(params):
    import logging

    logging.warning("high tide")
    logging.error("stack", stack_info=True)


def a_folder(params):
    import tempfile

    global kept
    kept = tempfile.TemporaryDirectory(dir=params["place"])
    with open(os.path.join(kept.name, "file"), "w") as file:
        file.write("x")


def a_file_that_goes(params):
    import tempfile

    global kept
    kept = tempfile.NamedTemporaryFile("w", dir=params["place"])
    kept.write("x")


def finalizers(params):
    class Tide:
        pass

    sys.kept = Tide()
    for name in ("first", "second"):
        weakref.finalize(sys.kept, note, params, name)
    weakref.finalize(sys.kept, note, params, "never").atexit = False
    atexit.register(note, params, "atexit")


def what_says_when_it_goes_by_what_goes_before(params):
    """Names that begin with _ go first, so that it says nothing."""
    global _note, kept

    class Tide:
        def __del__(self):
            _note(params, "never")

    _note, kept = note, Tide()
    kept.me = kept


def what_says_when_it_goes(params):
    class Tide:
        def __init__(self, name):
            self.name = name

        def __del__(self):
            note(params, f"{self.name} {json is not None} {os.sep}")

    global first, second
    first, second, sys.third = Tide("first"), Tide("second"), Tide("third")
    second.me = second
    json.fourth = Tide("fourth")


def farewells(params):
    for number in range(3):
        atexit.register(note, params, str(number))
    atexit.register(atexit.register, note, params, "registered late")


def a_farewell_to_the_output(params):
    atexit.register(print, "bye", file=sys.stderr)
    atexit.register(os.write, 2, b"raw bye\n")
    sys.stdout.write("no end of line")


def no_stream(params):
    os.closerange(0, 64)
    return "never said"


def no_output(params):
    os.close(1)
    print("nowhere")


def no_errors(params):
    os.close(2)
    print("nowhere", file=sys.stderr)


def streams_taken_away(params):
    sys.stdin = sys.stdout = sys.stderr = None
    print("nowhere")


def closed_streams(params):
    sys.stdout.close()
    sys.stderr.close()


def detached_streams(params):
    binary = sys.stdout.detach()
    binary.write(b"binary\n")


def streams_of_its_own(params):
    import io

    sys.stdout = io.TextIOWrapper(os.fdopen(os.dup(2), "wb"))
    sys.stderr = io.StringIO()
    print("buffered")
    print("lost", file=sys.stderr)


def a_full_stream(params):
    sys.stdout = open("/dev/full", "w")
    print("too much")


def a_broken_pipe(params):
    reading, writing = os.pipe()
    os.close(reading)
    sys.stdout = os.fdopen(writing, "w")
    print("nobody reads")


def another_program(params):
    os.execv("/bin/echo", ["echo", '{"echo": true}'])


def _run(params):
    found = globals()[params["case"]](params)
    if params.get("fails"):
        raise ValueError("and it failed")
    return found


def execute(params, project):
    return _run(params)


if __name__ == "__main__":
    print(json.dumps(_run(json.load(sys.stdin))))
