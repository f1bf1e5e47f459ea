# One thread keeps the GIL through calls into C, each 0.1 s long, while two others want it.
import ctypes, os, threading, time

c = ctypes.PyDLL(None)  # calls through it keep the GIL
rounds, threads = 8, 2
r, w = os.pipe()
os.set_inheritable(w, True)


def wants_gil():
    for i in range(rounds):
        os.read(r, 1)


def keeps_gil():
    c.system(("printf %s >&%d; sleep 0.1" % ("x" * threads, w)).encode())


time.sleep(1)  # until the tables for stacks are there
list_of = [threading.Thread(target=wants_gil) for i in range(threads)]
for t in list_of:
    t.start()
for i in range(rounds):
    keeps_gil()
os.write(w, b"x" * (rounds * threads))
for t in list_of:
    t.join()
