"""For gdb: holds a process at each sampling signal, before the signal's handler runs, and writes the whole stack.

Set before: pid, stops (how many), out (a path). A line per stop: thread id, the moment it was held and the moment before it was
let go on (ns of CLOCK_MONOTONIC), and its frames' addresses, leaf first, inlined and tail calls left out. Before the first
stop and whenever they changed, the process's mappings: "map LO HI OFFSET PATH"."""
import time

import gdb

for line in (
    "set pagination off", "set confirm off", "set debuginfod enabled off", "set auto-load python-scripts off",
    "set backtrace past-main on", "set backtrace past-entry on", "set backtrace limit 5000",
    "set follow-fork-mode parent", "set detach-on-fork on", "set print thread-events off", "set print inferior-events off",
    "handle SIGURG stop print pass", "handle SIGPIPE nostop noprint pass", "handle SIGALRM nostop noprint pass",
    "handle SIGCHLD nostop noprint pass", "attach %d" % pid,
):
    gdb.execute(line, to_string=True)

seen = None
gdb.events.stop.connect(lambda event: globals().__setitem__("seen", event))
maps, vdso = "", ""
with open(out, "w") as f:
    open(out + ".attached", "w").close()
    done = 0
    while done < stops:
        seen = None
        try:
            gdb.execute("continue", to_string=True)
        except gdb.error as e:
            print("after %d stops: %s" % (done, e))
            break
        if not gdb.selected_inferior().pid:
            print("after %d stops: the program ended: %s" % (done, seen))
            break
        if not isinstance(seen, gdb.SignalEvent) or seen.stop_signal != "SIGURG":
            continue
        held = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        with open("/proc/%d/maps" % pid) as m:
            now = m.read()
        if now != maps:
            maps = now
            for line in maps.splitlines():
                w = line.split(None, 5)
                if "x" in w[1] and len(w) == 6:
                    lo, hi = w[0].split("-")
                    f.write("map %s %s %s %s\n" % (lo, hi, w[2], w[5]))
                    if w[5] == "[vdso]" and vdso != lo:  # gdb does not look for it again after an exec
                        vdso = lo
                        gdb.execute("add-symbol-file-from-memory 0x" + lo, to_string=True)
        tid = gdb.selected_thread().ptid[1]
        stack, frame = [], gdb.newest_frame()
        while frame is not None:
            if frame.type() not in (gdb.INLINE_FRAME, gdb.TAILCALL_FRAME):  # neither has a return address on the stack
                stack.append("%x" % frame.pc())
            try:
                frame = frame.older()
            except gdb.error:
                break  # memory that cannot be read: the stack ends here
        f.write("stop %d %d %d %s\n" % (tid, held, time.clock_gettime_ns(time.CLOCK_MONOTONIC), " ".join(stack)))
        done += 1
if gdb.selected_inferior().pid:
    gdb.execute("kill", to_string=True)
