# ruff: noqa: SIM115, PLW0603
"""What a call of a tool leaves to its end, where an ordinary exit takes it apart in some order."""

import json
import os
import sys


def nothing(params):
    return None


def _note(params, text):
    """Say that something has happened, in a file, by itself: modules may be gone by then."""
    fd = os.open(params["place"] + "/notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, text.encode() + b"\n")
    os.close(fd)


def wraps_its_output_anew(params):
    import io

    sys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding="utf-8")
    print("wrapped")


def wraps_its_errors_in_a_codec(params):
    import codecs

    sys.stderr = codecs.getwriter("latin-1")(sys.stderr.detach())
    print("wrapped", file=sys.stderr)


def forgets_its_first_output(params):
    del sys.__stdout__


def takes_a_file_out_of_its_wrapper(params):
    global kept
    kept = [open(params["place"] + "/kept", "w")]
    kept[0].write("kept")
    kept.append(kept[0].detach())


def a_buffer_of_nothing(params):
    import io

    global kept
    kept = io.BufferedWriter.__new__(io.BufferedWriter)


def a_device_that_fails(params):
    import io

    class Device(io.RawIOBase):
        def writable(self):
            return True

        def write(self, data):
            raise LookupError("no tide")

    global kept
    kept = io.BufferedWriter(Device())
    kept.write(b"lost")


def a_file_of_its_own_kind(params):
    import io

    class File(io.TextIOWrapper):
        def close(self):
            _note(params, "closed")
            super().close()

    global kept
    kept = File(open(params["place"] + "/kept", "wb"))
    kept.write("kept")


def a_shelf_that_writes_back(params):
    import dbm.dumb  # files of other kinds hold the time when they were made
    import shelve

    global kept
    kept = shelve.Shelf(dbm.dumb.open(params["place"] + "/kept"), writeback=True)
    kept["tides"] = ["high"]
    kept["tides"].append("low")


def forbids_to_look_at_objects(params):
    def forbid(event, args):
        if event.startswith("gc."):
            raise PermissionError(event)

    sys.addaudithook(forbid)
    json.kept = open(params["place"] + "/kept", "w")
    json.kept.write("kept")


def watches_the_collector(params):
    import gc

    gc.callbacks.append(lambda phase, facts: _note(params, phase))


def hears_when_another_goes(params):
    import weakref

    class Tide:
        pass

    json.kept = Tide()
    sys.kept = weakref.ref(json.kept, lambda _: _note(params, "gone"))


def execute(params, project):
    return globals()[params["case"]](params)


if __name__ == "__main__":
    given = json.load(sys.stdin)
    print(json.dumps(globals()[given["case"]](given)))
