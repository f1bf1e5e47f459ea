# Sleeps in many kinds of stacks, and writes each stack to the file that it is given: a line of JSON, frames leaf first.
import ctypes, functools, json, sys, threading, time

out = open(sys.argv[1], "w")
libc = ctypes.CDLL(None)


def stack(f, frames):
    while f is not None:
        code = f.f_code
        frames.append([getattr(code, "co_qualname", code.co_name), code.co_filename, f.f_lineno])
        f = f.f_back
    return frames


def nap(case):
    frames = stack(sys._getframe(1), [])
    out.write(json.dumps({"case": case, "frames": [["nap", __file__, sys._getframe().f_lineno + 1]] + frames}) + "\n")
    time.sleep(0.02)


def plain():
    nap("plain")


class Thing:
    def method(self):
        nap("method")

    def __lt__(self, other):
        nap("sort")
        return False

    def __enter__(self):
        return self

    def __exit__(self, *problem):
        nap("exit")
        return True


def generator():
    nap("generator")
    yield 1


def callback(a, b):
    nap("ctypes")
    return 0


def by_ctypes():
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    call, numbers = kind(callback), (ctypes.c_int * 2)(2, 1)
    libc.qsort(numbers, 2, 4, call)


def raising():
    try:
        raise ValueError
    except ValueError:
        nap("except")
    finally:
        nap("finally")


def deep(n):
    return deep(n - 1) if n else nap("deep")


async def inner():
    nap("coroutine")


async def outer():
    await inner()


def run_coroutine():
    try:
        outer().send(None)
    except StopIteration:
        pass


def decorated(f):
    @functools.wraps(f)
    def wrapper(*args):
        return f(*args)
    return wrapper


@decorated
def wrapped():
    nap("wrapped")


def naïve_ünïcode_名前():
    nap("unicode")


time.sleep(1)  # until the tables for stacks are there
plain()
Thing().method()
sorted([Thing(), Thing()])
with Thing():
    raise KeyError
list(generator())
for i in map(lambda x: nap("lambda"), [1]):
    pass
[nap("comprehension") for x in [1]]
by_ctypes()
raising()
deep(30)
run_coroutine()
wrapped()
naïve_ünïcode_名前()
exec(compile("def made():\n\n    nap('exec')\n\nmade()\n", "<made up>", "exec"))
t = threading.Thread(target=functools.partial(nap, "thread"))
t.start()
t.join()
out.close()
