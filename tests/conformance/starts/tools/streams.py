"""What a call reads, and what it writes."""

import json
import os
import sys


def nothing(params):
    return None


def says(params):
    print(params["text"])
    print(params["text"], file=sys.stderr)


def says_and_answers(params):
    print(params["text"])
    return params["text"]


def writes_raw(params):
    os.write(1, b"\xff\x00\xfe\r\n")
    os.write(2, b"\xff\x00\xfe\r\n")
    sys.stdout.buffer.write(b"\xc3")
    return None


def writes_in_turn(params):
    for number in range(50):
        print("out", number, end=" ")
        os.write(2, b"raw %d " % number)
        sys.stderr.write("err ")
        os.write(1, b"raw out ")


def prints_half_a_pair(params):
    print("\ud800", file=sys.stderr)
    print("\ud800")


def prints_much(params):
    for _ in range(params["mib"]):
        os.write(params["fd"], b"." * (1 << 20))


def prints_much_without_an_end(params):
    stream = sys.stdout if params["fd"] == 1 else sys.stderr
    stream.write("." * (params["mib"] << 20))


def prints_nothing_but_lines(params):
    print("\n\n")


def prints_json(params):
    print(json.dumps({"printed": True}))


def a_child_prints(params):
    sys.stdout.write("before ")
    if os.system("echo child; echo child err >&2"):
        raise SystemExit(9)
    print("after")


def what_is_left_to_read(params):
    return [sys.stdin.read(), os.read(0, 10).hex(), sys.stdin.closed]


def execute(params, project):
    return globals()[params["case"]](params)


if __name__ == "__main__":
    raw = sys.stdin.buffer.read()
    given = json.loads(raw)
    if given["case"] == "nothing":
        print(json.dumps({"length": len(raw), "raw": raw[-200:].decode()}))
    else:
        found = globals()[given["case"]](given)
        if found is not None:
            print(json.dumps(found))
