# ruff: noqa: B904, B018, F601, SIM115, PLW0603
"""Ways in which a call of a tool ends."""

import atexit
import json
import os
import signal
import sys
import threading
import time


def nothing(params):
    return None


def answers(params):
    return {"params": params, "text": "ü\n\u2028🌊", "number": 1.5, "none": None, "yes": True}


def exits(params):
    codes = [None, 0, 1, 3, 255, 256, 300, -1, True, False, 2**31, 2**70, "no tide", "", 1.5,
             (), (1, 2), [3], b"x", "ü🌊"]  # fmt: skip
    sys.exit(codes[params["which"]])


def exits_without_a_word(params):
    raise SystemExit


def exits_by_a_class_of_its_own(params):
    class Ebb(SystemExit):
        pass

    raise Ebb(params["code"])


def exits_with_a_whole_number_of_its_own(params):
    class Code(int):
        def __str__(self):
            return "seven"

    sys.exit(Code(7))


def exits_from_a_handler(params):
    try:
        raise ValueError("first")
    except ValueError:
        sys.exit(6)


def exits_in_a_thread(params):
    thread = threading.Thread(target=sys.exit, args=(3,))
    thread.start()
    thread.join()


def exits_at_once(params):
    sys.stdout.write("seen")
    with open(params["place"] + "/lost", "w") as kept:
        kept.write("never written")
        os._exit(params["code"])


def aborts(params):
    os.abort()


def is_killed(params):
    os.kill(os.getpid(), params["signal"])
    time.sleep(0.01)
    return "survived"


def raises_a_signal(params):
    signal.raise_signal(params["signal"])
    return "survived"


def is_interrupted(params):
    raise KeyboardInterrupt("by nobody")


def is_told_to_end_and_says_so(params):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(10)


def an_alarm(params):
    signal.setitimer(signal.ITIMER_REAL, 0.01)
    signal.pause()


def raises(params):
    raise ValueError("no tide: ü 🌊")


def raises_from_deep(params):
    def down(n):
        if n == 0:
            raise LookupError(n)
        down(n - 1)

    down(7)


def raises_with_a_cause(params):
    try:
        1 / 0
    except ZeroDivisionError as error:
        raise KeyError("ebb") from error


def raises_in_a_handler(params):
    try:
        1 / 0
    except ZeroDivisionError:
        raise KeyError("ebb")


def raises_with_notes(params):
    error = ValueError("noted")
    error.add_note("at high tide")
    raise error


def raises_a_group(params):
    try:
        raise ValueError(1)
    except ValueError as error:
        first = error
    raise ExceptionGroup("both", [first, ExceptionGroup("inner", [KeyError(2), OSError(2, "no")])])


def raises_what_cannot_be_shown(params):
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError("never")

    raise Odd


def raises_a_base(params):
    class Base(BaseException):
        pass

    raise Base("base")


def raises_an_open_error(params):
    open(params["place"] + "/nowhere/at/all")


def recurses(params):
    recurses(params)


def imports_nothing_that_is(params):
    import tide_of_nowhere  # noqa: F401


def imports_a_name_that_is_not(params):
    from json import tide  # noqa: F401


def imports_the_broken(params):
    with open(params["place"] + "/broken_tide.py", "w") as module:
        module.write("x = 1\nraise ArithmeticError('in a module')\n")
    sys.path.insert(0, params["place"])
    import broken_tide  # noqa: F401


def compiles_nonsense(params):
    exec(compile("def f(:\n  pass\n", "<tide>", "exec"))


def indents_badly(params):
    exec("if 1:\nx = 2\n")


def spells_wrong(params):
    return json.dunps


def runs_out(params):
    raise MemoryError


def fails_in_a_thread(params):
    thread = threading.Thread(target=lambda: 1 / 0, name="ebb")
    thread.start()
    thread.join()
    return "went on"


def fails_in_a_thread_at_the_end(params):
    def late():
        threading.main_thread().join()
        raise ValueError("late")

    threading.Thread(target=late, name="ebb").start()


def fails_when_it_goes(params):
    class Ebb:
        def __del__(self):
            raise ValueError("ebb")

    global kept
    kept = Ebb()


def fails_when_it_goes_at_once(params):
    class Ebb:
        def __del__(self):
            raise ValueError("ebb")

    Ebb()
    return 1


def fails_at_its_farewell(params):
    atexit.register(print, "first registered")
    atexit.register(lambda: 1 / 0)
    atexit.register(print, "last registered")


def exits_at_its_farewell(params):
    atexit.register(print, "first registered")
    atexit.register(sys.exit, 5)


def exits_hard_at_its_farewell(params):
    atexit.register(os._exit, 6)


def dies_at_its_farewell(params):
    atexit.register(os.kill, os.getpid(), 9)


def says_farewell_and_fails(params):
    atexit.register(print, "bye")
    raise ValueError("but first")


def has_another_hook(params):
    sys.excepthook = lambda kind, error, trace: print("hooked", kind.__name__, error)
    raise ValueError("hooked")


def has_another_unraisable_hook(params):
    sys.unraisablehook = lambda found: print("unraisable", found.exc_type.__name__)
    return fails_when_it_goes_at_once(params)


def warns(params):
    import warnings

    warnings.warn("ebb", stacklevel=1)
    warnings.warn("old", DeprecationWarning, stacklevel=1)
    warnings.warn("flow", UserWarning, stacklevel=2)
    exec("assert (1, 'always')")


def leaves_a_coroutine(params):
    async def never():
        pass

    never()


def leaves_a_coroutine_to_the_end(params):
    async def never():
        pass

    global kept
    kept = never()


def leaves_a_future_with_an_error(params):
    import asyncio

    async def main():
        asyncio.get_running_loop().create_future().set_exception(ValueError("unseen"))

    asyncio.run(main())


def warns_of_what_is_open(params):
    import warnings

    warnings.simplefilter("always")
    open(params["place"] + "/opened", "w").write("x")


def not_a_number(params):
    return {"not": float("nan"), "big": [float("inf"), -float("inf")]}


def a_deep_result(params):
    result = []
    for _ in range(params["depth"]):
        result = [result]
    return result


def a_result_in_a_circle(params):
    result = {}
    result["me"] = result
    return result


def a_result_of_odd_keys(params):
    return {(1, 2): 3}


def a_result_of_plain_keys(params):
    return {1: "a", None: "b", True: "c", 1.5: "d"}


def an_odd_result(params):
    from fractions import Fraction

    return {"ratio": Fraction(1, 3), "bytes": b"\xff", "error": ValueError("x"), "range": range(3)}


def a_result_that_cannot_be_text(params):
    class Odd:
        def __str__(self):
            raise ValueError("no text")

    return Odd()


def half_a_pair(params):
    return "\ud800"


def a_huge_result(params):
    return "x" * params["size"]


def a_number_of_many_digits(params):
    return 10 ** params["digits"]


def a_failure(params):
    return {"success": False, "error": "it said no"}


def a_status_of_error(params):
    print("why", file=sys.stderr)
    return {"status": "error"}


def recursion_in_the_result(params):
    sys.setrecursionlimit(60)
    return a_deep_result({"depth": 200})


def traces(params):
    sys.settrace(lambda *_: None)
    sys.setprofile(lambda *_: None)


def another_way_out(params):
    sys.exit = os._exit = None


def no_modules(params):
    sys.modules.clear()


def other_modules(params):
    sys.modules = dict(sys.modules)


def no_builtins(params):
    import builtins

    vars(builtins).clear()


def replaces_itself(params):
    sys.modules["tool"] = sys.modules["__main__"] = None


def deletes_itself(params):
    del sys.modules["__main__"]
    globals().clear()


def execute(params, project):
    return globals()[params["case"]](params)


def main():
    params = json.load(sys.stdin)
    result = globals()[params["case"]](params)
    print(json.dumps(result, default=str))


if __name__ == "__main__":
    main()
