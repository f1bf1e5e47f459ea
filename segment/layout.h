/* layout.h: the session's shared memory, byte by byte, for the agent (C) and the collector (Go).
 *
 * One sealed memfd per session, mapped MAP_SHARED by every process of the session, by the collector
 * and by the sampler:
 *
 *   offset 0             struct hb_header       geometry, configuration, the tick
 *   header.procs_off     struct hb_proc[]       one slot per process
 *   header.threads_off   struct hb_thread[]     one slot per thread
 *   header.ring_ctl_off  struct hb_subbuf[]     K sub-buffer controls
 *   header.ring_data_off K * ring_bytes         K sub-buffers, each a power of two
 *
 * Who may write what is said at each field. The collector trusts nothing that an agent writes: it
 * copies cursors and records locally, then bounds-checks (the target may scribble anything here).
 * The agent copies the geometry once at attach, after checking magic, version and sizes.
 *
 * Fields are grouped by writer, a cache line per group, so that the sampler polling a state word does
 * not slow the thread that counts its allocations on the next line.
 *
 * Times: "_ns" is CLOCK_MONOTONIC nanoseconds; "_cycles" is the raw cycle counter of hb_stamp().
 * The Go side (zlayout.go) is generated from this file by segment/gen and fails to compile when it drifts.
 */
#ifndef HB_LAYOUT_H
#define HB_LAYOUT_H

#include <stdint.h>

#define HB_MAGIC 0x3165636172746268ull /* "hbtrace1", little endian */
#define HB_ABI_VERSION 2u

#define HB_NAME_BYTES 16 /* TASK_COMM_LEN */
#define HB_MAX_FRAMES 252 /* frames kept of one stack; deeper ones keep both ends. A thread's memory is 32 KiB by it */
#define HB_ROOT_FRAMES 91 /* of these, how many at the root end when a stack is cut in the middle */
#define HB_MAX_RECORD 4096 /* bytes of the largest record, a multiple of 8 */

/* ---- header.features: what the session records (immutable) ---- */
#define HB_FEATURE_CPU 1u
#define HB_FEATURE_ALLOC 2u
#define HB_FEATURE_LOCK 4u
#define HB_FEATURE_CALL 8u

struct hb_header {
  /* -- written by the collector before anyone else maps the segment; immutable -- */
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t segment_bytes;
  uint64_t procs_off;
  uint64_t threads_off;
  uint64_t ring_ctl_off;
  uint64_t ring_data_off;
  uint32_t procs_cap;
  uint32_t threads_cap;
  uint32_t proc_bytes;   /* sizeof(struct hb_proc) */
  uint32_t thread_bytes; /* sizeof(struct hb_thread) */
  uint32_t subbuf_bytes; /* sizeof(struct hb_subbuf) */
  uint32_t ring_count;   /* K */
  uint64_t ring_bytes;   /* of one sub-buffer, a power of two */
  uint32_t features;     /* HB_FEATURE_* */
  uint32_t signal;       /* the sampling signal */
  uint64_t tick_ns;      /* length of a tick */
  uint64_t alloc_period; /* mean bytes between sampled allocations; 1 = all */
  uint64_t call_threshold_ns;  /* blocking calls shorter than this leave only counters */
  uint64_t lock_threshold_ns;  /* contended waits shorter than this leave only counters */
  uint64_t release_debt_ns;    /* delay a lock's releases must have caused before one is recorded */
  uint64_t cycles_mult;  /* ns = (cycles * cycles_mult) >> 32; 0: hb_stamp() is already ns */
  uint32_t cookie;       /* si_value of our signal: cookie | kind in the low 8 bits; low 8 bits 0 here */
  uint32_t alloc_slots;  /* entries of each process's table of sampled live addresses, a power of two */
  uint64_t cpu_period_ns; /* CPU time of a thread per sampling point (sampler/points.h); 0: no CPU profile */
  uint64_t reserved0[7];
  /* -- own line; written by the sampler each tick, read by every hook -- */
  _Alignas(64) _Atomic uint64_t tick; /* CLOCK_MONOTONIC / tick_ns; 0 = not started, hooks take no samples */
  _Atomic uint64_t rested_ns; /* CLOCK_MONOTONIC when the sampler last went to sleep */
  /* -- own line; written by the collector -- */
  _Alignas(64) _Atomic uint64_t heartbeat_ns; /* last drain; an agent whose ring is full and whose collector
                                               has been silent for HB_SILENCE_NS stops recording until it moves */
  _Atomic uint32_t recording; /* 1 while the session records; 0 = hooks pass through */
  /* -- own line; written by the collector: how much detail is recorded (collector/budget.go). 0: as configured above -- */
  _Alignas(64) _Atomic uint64_t knob_cpu_period_ns; /* CPU time of a thread per sampling point; never less than configured */
  _Atomic uint64_t knob_wait_ns; /* contended waits shorter than this leave only counters, */
  _Atomic uint64_t knob_call_ns; /* and so do blocking calls shorter than this */
  _Atomic uint64_t knob_alloc_period; /* mean bytes between sampled allocations, at least */
  _Atomic uint32_t knob_holds; /* acquisitions of hot locks that a thread notes in a tick; 0: HB_HOLD_PER_TICK */
  _Atomic uint32_t knob_ticks; /* the sampler wakes up each so many ticks; 0: each */
  _Atomic uint32_t knob_flags; /* HB_KNOB_* */
  /* -- own line; written by agents (fetch-and-add) -- */
  _Alignas(64) _Atomic uint32_t next_proc_uid;   /* last uid given; uids start at 1 */
  _Atomic uint32_t next_thread_uid;
  _Atomic uint32_t threads_high; /* one above the highest thread slot ever claimed */
  _Atomic uint32_t procs_high;
  _Atomic uint64_t threads_unslotted; /* threads that found no free slot: not recorded, counted */
  _Atomic uint64_t procs_unslotted;
};
#define HB_SILENCE_NS 3000000000ull
#define HB_KNOB_NO_GAPS 1u    /* no samples for the timeline alone */
#define HB_KNOB_NO_WRITERS 2u /* who wrote to a descriptor is not looked up */

/* ---- processes ----
 * FREE -> CLAIMING (agent, CAS) -> LIVE (agent, release store, identity filled)
 *      -> EXITED (agent at exit, or the collector when the process is gone)
 *      -> FREE (collector only, after it has read what was there and the process is gone) */
enum { HB_PROC_FREE, HB_PROC_CLAIMING, HB_PROC_LIVE, HB_PROC_EXITED };

/* hb_proc.flags */
#define HB_PROCF_FORKED 1u        /* claimed by a fork child: modules are the parent's */
#define HB_PROCF_SYNC_ONLY 2u     /* the target keeps the sampling signal for itself: never signal it */
#define HB_PROCF_MUTEX_OPAQUE 4u  /* lock word layout not recognised: locks are tried before they are waited for */
#define HB_PROCF_HANDLER_CHAINED 8u /* the target has a handler of its own for the signal: ours calls it, and nobody sends
                                     the signal: threads sample themselves at hooks */
#define HB_PROCF_ALLOC_FOREIGN 16u  /* malloc resolved outside libc (jemalloc, tcmalloc, …) */
#define HB_PROCF_NO_RSEQ 32u
#define HB_PROCF_LOADING 128u /* an attached program loads objects whose calls are not redirected yet: nobody sends the signal */
#define HB_PROCF_GO 64u /* claimed by the recorder for a Go program, whose runtime it has hooked (goruntime/) */

/* hb_proc.gate. The sampler sends only after it has won OPEN -> SENDING, a few microseconds long; a process that is not to be
 * sent anything from here on adds EXEC and waits for SENDING to go. Threads that exec do, and take it back when the exec failed: a
 * real-time signal kills a program that has just been exec'ed, since nobody handles it there (hooks/exec.h). A process that
 * confines its system calls does, for good (hooks/confine.h). */
enum { HB_GATE_OPEN, HB_GATE_SENDING = 1 /* bit, sampler */, HB_GATE_EXEC = 2 /* added, agent */ };

/* hb_proc.disabled: why the agent stopped recording in this process; 0 = it records */
enum {
  HB_OFF_NO,
  HB_OFF_COLLECTOR_SILENT, /* ring full and no heartbeat for HB_SILENCE_NS; it goes on with the heartbeat */
  HB_OFF_NO_MEMORY,        /* mmap of thread memory failed */
  HB_OFF_NO_CLOCK,         /* no usable CLOCK_MONOTONIC */
  HB_OFF_UNRESOLVED,       /* a function that every program needs could not be resolved */
  HB_OFF_SECCOMP,          /* the target confined its system calls: none of ours may be the one that kills it */
  HB_OFF_NO_COUNTER,       /* the target took the cycle counter from itself (PR_SET_TSC) */
};

struct hb_proc {
  /* written by the agent that claimed the slot */
  _Atomic uint32_t state;
  _Atomic uint32_t uid;       /* session-unique, from header.next_proc_uid */
  uint32_t pid;               /* as the process sees it (its own pid namespace) */
  uint32_t parent_uid;        /* fork: uid of the forking process; exec and first: 0 */
  uint32_t host_pid;          /* from SO_PEERCRED via hb_hello for attached processes; 0 for fork children */
  uint32_t ppid;              /* getppid() at claim */
  uint64_t start_ns;
  _Atomic uint32_t flags;     /* HB_PROCF_* */
  _Atomic uint32_t disabled;  /* HB_OFF_* */
  _Atomic uint32_t modules_gen; /* bumped when modules came or went (dlopen, dlclose) */
  _Atomic uint32_t modules_lost; /* MODULE records that the ring had no room for */
  /* counters of doubt, written by any thread of the process (relaxed adds) */
  _Atomic uint64_t lost;            /* records dropped for want of ring space or a free sub-buffer */
  _Atomic uint64_t signals_foreign; /* sampling signal arrived without our cookie: chained or ignored */
  _Atomic uint64_t signals_stray;   /* ours, but the slot was not SIGNALLED */
  _Atomic uint64_t walks_refused;   /* nobody's to record: a handler in the agent's own section, or a task on another's thread pointer */
  _Atomic uint64_t alloc_table_full; /* sampled allocations whose free cannot be seen, or was seen too early */
  _Atomic uint64_t hooks_unresolved; /* wrapped functions with nothing behind them */
  _Atomic uint64_t boot_allocs;     /* allocations served before malloc was resolved */
  _Atomic uint32_t gate;            /* HB_GATE_* */
  _Atomic uint32_t signal;          /* the sampling signal here: header.signal, or another that is ignored by default (sampler/move.h) */
  _Atomic uint64_t small_stacks; /* alternate signal stacks without room for our handler: their threads are not signalled */
  _Atomic uint64_t codes_unnamed; /* frames of Python whose function could not be named */
  _Atomic uint64_t python_cut;    /* stacks of Python that end in memory that holds no frame */
  _Atomic uint64_t own_stamps; /* of threads that have ended: hb_thread.own_stamps */
  _Alignas(64) uint8_t exe[128];    /* path as readlink(/proc/self/exe) gave it, NUL-terminated, may be cut */
};

/* ---- threads ----
 * uid == 0: the slot is free. An agent claims a slot by CAS of uid 0 -> HB_UID_CLAIMING, fills it, then
 * stores the real uid with release. It is freed by the thread itself at its exit (THREAD_EXIT record
 * written, state EXITED, uid 0), or by the collector when the thread is seen to be gone. */
#define HB_UID_CLAIMING 0xffffffffu

/* hb_thread.state: the handshake of syscallproxy/proxy.h
 *   RUNNING  -> SIGNALLED  sampler, CAS, before it sends the signal
 *   RUNNING  -> BLOCKED    thread, CAS, entering a call that can sleep
 *   RUNNING  -> EXITED     thread, CAS, leaving for good
 *   SIGNALLED-> RUNNING    thread, in the handler or after consuming the signal; the sampler if sending failed
 *   BLOCKED  -> RUNNING    thread, plain release store
 * A thread whose target has the signal masked, or whose alternate signal stack is too small for our handler, rests in MASKED instead of RUNNING: a pending signal of ours would
 * swallow one of the target's own (standard signals do not queue). Nobody signals it; it samples itself at its hooks. */
enum { HB_RUNNING, HB_SIGNALLED, HB_BLOCKED, HB_EXITED, HB_MASKED };

/* hb_thread.ask: what the sample that the signal stands for is to be */
enum { HB_ASK_PERIODIC = 1, HB_ASK_GAP = 2 };

/* hb_thread.flags */
#define HB_THREADF_MAIN 1u      /* the process's first thread */
#define HB_THREADF_LAZY 2u      /* met at a hook, not seen at its creation: start time is that of the meeting */
#define HB_THREADF_STACK_GUESSED 4u /* stack_hi is an estimate */
#define HB_THREADF_GOROUTINE 8u /* a goroutine: tid is its number, and it has no slot */

struct hb_thread {
  /* -- line 0: the handshake; thread and sampler -- */
  _Atomic uint32_t state;
  _Atomic uint32_t ask;        /* written by the sampler before its CAS */
  _Atomic uint64_t asked_ns;   /* when the signal was sent; sampler, before its CAS */
  _Atomic uint32_t asked_cpu;  /* 1 + the CPU that the sampler was on then; 0 unknown; sampler, before its CAS */
  uint32_t reserved5;
  _Atomic uint64_t looked_cpu_ns; /* its CPU time up to the kernel's last tick or switch then; 0 unknown; sampler, before its CAS */
  uint64_t reserved4[4];
  /* -- line 1-2: identity; written at claim, immutable until the slot is freed -- */
  _Alignas(64) _Atomic uint32_t uid;
  uint32_t proc;               /* index of the process slot */
  uint32_t proc_uid;
  uint32_t tid;                /* as the process sees it */
  uint32_t parent_uid;         /* thread that called pthread_create; 0 unknown */
  _Atomic uint32_t flags;      /* HB_THREADF_* */
  uint64_t start_ns;
  uint64_t start_routine;
  uint64_t stack_hi;
  uint8_t name[HB_NAME_BYTES];
  uint64_t cpu_start_ns;       /* thread CPU time from which on it is recorded: when the slot was claimed; 0 if met at its birth */
  uint64_t thread_pointer;     /* its pthread_t on glibc and musl */
  /* -- line 3: written by the thread on hook paths, read by collector and sampler -- */
  _Alignas(64) _Atomic uint64_t last_tick; /* tick of the last sample taken, whatever its kind */
  _Atomic uint64_t alloc_objects;
  _Atomic uint64_t alloc_bytes;
  _Atomic uint64_t free_objects;
  _Atomic uint64_t calls;      /* blocking-call hooks passed */
  _Atomic uint64_t calls_slow; /* of them, longer than the threshold */
  _Atomic uint64_t waits;      /* contended lock waits */
  _Atomic uint64_t wait_ns;    /* their sum, recorded or not */
  /* -- line 4: what the thread is in right now; thread writes, anyone reads -- */
  _Alignas(64) _Atomic uint32_t in_hook; /* hook id, 0 = none */
  _Atomic uint32_t in_owner_tid; /* lock's owner when the wait began; 0 unknown */
  _Atomic uint64_t in_object;  /* address of the lock, or the descriptor */
  _Atomic uint64_t in_tick;    /* header.tick at entry: since when, to a tick */
  _Atomic uint64_t in_pc;      /* return address of the hook */
  _Atomic uint64_t own_stamps; /* CPU time that the agent used on this thread, in stamps (agent/own.h) */
  uint64_t reserved2[3];
  /* -- line 5: loss and sequence; thread -- */
  _Alignas(64) _Atomic uint32_t seq; /* records written or dropped by this thread so far */
  _Atomic uint32_t lost;       /* of them dropped */
  _Atomic uint64_t cpu_ns;     /* thread CPU time at the last sample that read it */
  _Atomic uint64_t samples;    /* async samples taken */
  uint64_t reserved3[5];
};

/* ---- ring ----
 * A producer takes `lock` (0 -> its thread uid), copies a whole record at head, publishes head with release,
 * stores 0 to lock. It never waits: a taken lock or a full sub-buffer means the next one; all K tried means
 * the record is dropped and counted. The consumer never takes the lock; only when the process that holds
 * it is known to be dead does it store 0 there. head - tail <= ring_bytes; both only grow. */
struct hb_subbuf {
  /* written by producers under lock */
  _Alignas(64) _Atomic uint32_t lock;
  uint32_t pad0;
  _Atomic uint64_t head;
  /* written by the consumer */
  _Alignas(64) _Atomic uint64_t tail;
  uint64_t pad1[7];
};

/* ---- records ----
 * Every record starts with hb_rec and is a multiple of 8 bytes; it never wraps (a PAD record fills the end).
 * Records of one thread may lie in several sub-buffers: `seq` (per thread, counting dropped ones) orders
 * them and shows what is missing. */
enum hb_rec_type {
  HB_REC_PAD,       /* fills a sub-buffer's end: only `bytes` and `type` mean anything */
  HB_REC_PROC,      /* hb_rec_proc: a process began (once per attach or fork child) */
  HB_REC_MODULE,    /* hb_rec_module: an object was mapped before this moment */
  HB_REC_THREAD,    /* hb_rec_thread: repeats the slot's identity; first record of a thread */
  HB_REC_SAMPLE,    /* hb_rec_sample */
  HB_REC_INTERVAL,  /* hb_rec_interval: a wait or a slow call that has ended */
  HB_REC_RELEASE,   /* hb_rec_release: something was let go while somebody waited for it */
  HB_REC_ALLOC,     /* hb_rec_alloc */
  HB_REC_FREE,      /* hb_rec_free: a sampled allocation was freed */
  HB_REC_NAME,      /* hb_rec_name: the thread was renamed */
  HB_REC_THREAD_EXIT, /* hb_rec_exit: the thread's last record; its totals */
  HB_REC_PROC_EXIT, /* hb_rec without payload: the process is about to exit or exec */
  HB_REC_CODE,      /* hb_rec_code: a function of Python, before the first stack that has it */
  HB_REC_TYPES
};

struct hb_rec {
  uint32_t bytes;  /* whole record */
  uint8_t type;
  uint8_t flags;   /* HB_RECF_* */
  uint16_t hook;   /* hook id (hooks/table.h), 0 = none */
  uint32_t thread; /* thread uid */
  uint32_t seq;
  uint64_t time_ns; /* when it was taken; for intervals, their end */
};

/* hb_rec.flags */
#define HB_RECF_CONSUMED 1u  /* sample: taken at a hook for CPU time burned before it, so the stack is late */
#define HB_RECF_INTERRUPTED 2u /* interval: ended by EINTR */
#define HB_RECF_TIMEDOUT 4u  /* interval: ended by its time-out */
#define HB_RECF_FAILED 8u    /* interval: the call returned another error */
#define HB_RECF_OPEN 1u     /* interval: it had not ended when the record was written */
#define HB_RECF_STALE 32u    /* PERIODIC: the thread was not on a CPU when the signal was sent; its stack is where it was
                                preempted */
#define HB_RECF_AFTER_SYSCALL 2u /* PERIODIC: the signal was taken where a system call ends */
#define HB_RECF_SAME_CPU 4u  /* PERIODIC: the sampler took the CPU from the thread, so the signal was not on its way while that ran */
#define HB_RECF_SHARED 128u   /* interval, release: the object lies in memory that processes share */
#define HB_RECF_ONLY 64u     /* interval of a call: nobody but `releaser` can have ended it */
#define HB_RECF_ALONE 16u    /* PERIODIC, consumed: the sample before it lies in this run of work, which was too short for
                                signals from another CPU: it speaks for itself alone */
#define HB_RECF_UNWOUND 16u  /* interval: left by an exception, cancellation or longjmp */

/* A stack as a delta against the stack in the same thread's previous stack-carrying record.
 * `same` frames counted from the root are the same invocations as in that record; `count` program
 * counters follow, root side first, leaf last. A record with HB_STACK_FULL has same == 0 and stands alone.
 * An absent stack has HB_STACK_NONE and leaves the thread's previous stack in force. */
struct hb_stack {
  uint16_t same;
  uint16_t count;
  uint16_t flags;   /* HB_STACK_* */
  uint16_t python;  /* words of Python frames (HB_PY_*) that follow the program counters */
  uint32_t omitted; /* frames left out between both ends; the marker pc stands where they were */
  uint32_t reserved2;
};
#define HB_STACK_FULL 1u
#define HB_STACK_NONE 2u
#define HB_STACK_CUT 4u     /* the walk stopped before the thread's first frame: callers are missing */
#define HB_STACK_GUESSED 8u /* at least one frame was found by a guess (frame pointer where none is promised) */
#define HB_STACK_OMITTED 16u
#define HB_STACK_SAME_CALL 32u /* the first of the `count` frames is the same invocation as the frame that stood at
                                that depth before, at another instruction: one span, two addresses */

/* A pc's top four bits say how the frame was found; the low 60 are the address, or the number of frames
 * omitted for HB_PC_MARK. */
#define HB_PC_SHIFT 60
enum {
  HB_PC_EXACT = 1, /* the interrupted instruction itself (leaf of an async sample, frame under a signal) */
  HB_PC_CALLER,    /* return address of the hook's own frame: certain */
  HB_PC_FP,        /* return address, by frame pointer */
  HB_PC_TABLE,     /* return address, by unwind table */
  HB_PC_GUESS,     /* return address, sniffed */
  HB_PC_MARK,      /* not an address: so many frames omitted here */
};

/* hb_rec_sample.kind */
enum { HB_SAMPLE_SYNC = 1, /* a hook in a new tick */
       HB_SAMPLE_ENTER,    /* entering a call that parks: the thread may be blocked from here on */
       HB_SAMPLE_PERIODIC, /* for the CPU profile: a signal, or a sampling point passed inside or before a call */
       HB_SAMPLE_GAP       /* async, CPU burned with no hook passed: timeline only */ };

struct hb_rec_sample {
  struct hb_rec rec;
  uint32_t kind;
  uint32_t worth; /* PERIODIC, by a signal: what it counts for beside others that were met in runs of the same kind, in 256ths; 0: as one. The
                     beginnings of runs are met by few signals (sampler/flight.h) */
  uint64_t cpu_ns;  /* thread CPU time (CLOCK_THREAD_CPUTIME_ID) at the sample; 0 = not read */
  uint64_t weight_ns; /* PERIODIC: CPU time that the sampling points passed since the record before stand for, a multiple of
                         cpu_period_ns; 0: none was passed */
  uint64_t object;  /* ENTER: lock address or descriptor; PERIODIC, outside of calls: where the run of work that it lies in
                       began, as the return address of the call before; 0 unknown, or nobody signals the thread */
  struct hb_stack stack; /* program counters follow */
};

struct hb_rec_interval {
  struct hb_rec rec;
  uint64_t start_ns;
  uint64_t object;      /* lock or futex address, or descriptor, or 0 */
  uint64_t object2;     /* cond_wait: the mutex; a poll with a releaser: the descriptor that was ready; a goroutine's: for how
                           many ns in all it has been runnable without running (version "go" in hooks/table.h) */
  int64_t result;       /* return value, or -errno */
  uint32_t owner_tid;   /* lock owner's tid when the wait began; 0 = unknown or not a lock */
  uint32_t releaser;    /* thread uid that let go last before the wait ended, or wrote what was waited for; 0 = unknown */
  uint64_t release_ns;  /* when it let go; 0 = unknown */
  struct hb_stack stack;
};

struct hb_rec_release {
  struct hb_rec rec;    /* time_ns: just before the object was let go */
  uint64_t object;
  uint64_t debt_ns;     /* delay caused by releases of this object since the last recorded one, this included */
  uint64_t acquired_ns; /* when this thread took the lock; of a wake-up (class WAKE) when the call came back; 0 = unknown */
  uint32_t woken;       /* futex wake: how many the kernel woke; others: waiters registered */
  uint32_t taken_hook;  /* by which call it was taken; 0: HB_STACK_NONE in `taken` */
  struct hb_stack taken; /* where it was taken, as a difference to `stack`; its program counters follow those of `stack` */
  struct hb_stack stack;
};

struct hb_rec_alloc {
  struct hb_rec rec;
  uint64_t addr;
  uint64_t bytes;  /* asked for */
  uint64_t period; /* mean sampling gap in force on this thread, bytes; the collector weights with it */
  uint32_t tracked; /* 1: a FREE will follow when it is freed */
  uint32_t reserved;
  struct hb_stack stack;
};

struct hb_rec_free {
  struct hb_rec rec;
  uint64_t addr;
};

struct hb_rec_thread {
  struct hb_rec rec;
  uint32_t proc_uid;
  uint32_t tid;
  uint32_t parent_uid;
  uint32_t flags; /* HB_THREADF_* */
  uint64_t start_ns;
  uint64_t start_routine;
  uint64_t cpu_start_ns;
  uint8_t name[HB_NAME_BYTES];
};

struct hb_rec_name {
  struct hb_rec rec;
  uint8_t name[HB_NAME_BYTES];
  uint32_t of; /* uid of the thread that got the name; 0: the one that wrote the record */
  uint32_t reserved;
};

struct hb_rec_proc {
  struct hb_rec rec;
  uint32_t proc_uid;
  uint32_t proc_slot;
  uint32_t pid;
  uint32_t parent_uid;
  uint32_t flags; /* HB_PROCF_* */
  uint32_t reserved;
};

struct hb_rec_module {
  struct hb_rec rec;
  uint32_t proc_uid;
  uint32_t path_bytes;
  uint64_t bias;    /* address - ELF virtual address */
  uint64_t lo, hi;  /* addresses covered by its PT_LOAD segments, [lo, hi) */
  /* path follows, not NUL-terminated, padded to 8; empty = the main program */
};

struct hb_rec_exit {
  struct hb_rec rec;
  uint64_t cpu_ns;
  uint64_t alloc_objects, alloc_bytes, free_objects;
  uint64_t calls, calls_slow, waits, wait_ns;
  uint64_t queue_ns; /* goroutines: for how long in all it was runnable without running */
};

/* ---- Python programs ----
 * A stack's frames of Python follow its program counters, a word each, root first: the number of the native frame that
 * runs them, counted from the root; 12 bits of where the frame lies in memory, which tell calls apart; the instruction, in
 * units of two bytes from the beginning of the function's code; and the function, by the id of its CODE record.
 * Frames that one evaluation loop runs stand in place of its native frame. */
#define HB_PY_ID_SHIFT 40    /* 24 bits */
#define HB_PY_INSTR_SHIFT 20 /* 20 bits */
#define HB_PY_CALL_SHIFT 8   /* 12 bits */
#define HB_PY_NATIVE 0xffu   /* 8 bits */
#define HB_PY_UNPLACED 0xffu /* the native frame is not known */
#define HB_PY_NO_ID 0u       /* a function whose CODE record could not be made */
#define HB_PY_MARK 0xffffffu /* as id: no function; so many frames as the instruction says are left out here */
#define HB_PY_FRAMES 200     /* kept of one stack; deeper ones keep both ends */
#define HB_PY_ROOT_FRAMES 59 /* of these, at the root end */
#define HB_PY_CODES 65536    /* functions of one process that have an id; a power of two */

/* A function, by what its code object says. Strings are as CPython keeps them: characters of `kind` bytes each, latin-1,
 * UCS-2 or UCS-4. A line table that one record has no room for comes in several, which repeat the rest. */
struct hb_rec_code {
  struct hb_rec rec;
  uint32_t id;
  uint32_t version;     /* of Python: major << 8 | minor; says how the line table is coded */
  int32_t first_line;
  uint32_t table_bytes; /* of the whole line table; UINT32_MAX: it could not be read */
  uint32_t table_at;    /* where the part that follows lies in it */
  uint16_t table_part;  /* bytes of it that follow */
  uint16_t name_bytes;  /* that follow */
  uint16_t file_bytes;
  uint8_t name_kind, file_kind; /* 1, 2, 4; 0: it could not be read */
  uint8_t cut;          /* HB_CODE_*_CUT */
  uint8_t reserved[3];
  /* name, file and table part follow, each padded to 8 bytes */
};
enum { HB_CODE_NAME_CUT = 1, HB_CODE_FILE_CUT = 2 };

/* Where a process's Python keeps what stacks are made of, for the version that it is: the recorder finds it out from the file
 * and publishes it with the process's unwind tables. Offsets are in bytes; 0 stands for what a version does not have. */
struct hb_python {
  uint64_t runtime;   /* address of _PyRuntime */
  uint64_t code_type; /* address of PyCode_Type */
  uint64_t eval_lo, eval_hi; /* code of the evaluation loop; for versions whose frames do not say which loop runs them */
  uint64_t key;       /* address of the runtime's key of the thread state: {int set; unsigned key} */
  uint32_t version;   /* major << 8 | minor */
  uint32_t free_threaded;
  uint32_t ts_interp, ts_frame; /* of a thread state; ts_frame is the cframe's from 3.11 to 3.12 */
  uint32_t cframe_frame, cframe_previous;
  uint32_t ts_cframe; /* 3.10: the cframe, which only places frames */
  uint32_t frame_previous, frame_code, frame_instr, frame_entry, frame_owner;
  uint32_t code_code, code_table, code_qualname, code_name, code_file, code_first;
  uint32_t ascii_bytes, compact_bytes; /* header of a string */
  uint32_t kind_shift; /* in the state word of a string, at 32: kind 3 bits, compact, ascii */
  uint32_t bytes_data; /* of a bytes object */
  uint64_t gil;        /* address of the GIL; 0: interp_gil */
  uint32_t interp_gil; /* in an interpreter: pointer to its GIL */
  uint32_t gil_holder, gil_locked, gil_cond, gil_mutex, gil_switch;
  uint32_t request_runtime, request_interp, request_thread; /* where the request to drop it is: one of these */
  uint32_t main_interp; /* in _PyRuntime: pointer to the main interpreter */
};

/* ---- Go programs ----
 * The recorder maps code (goruntime/blob.c), the segment and one table of goroutines into a Go program. The code's
 * image begins with the configuration, which nothing writes any more once the program runs. The table is a memfd of
 * its own: one hb_go_table, then `entries` of hb_go_entry, then as many uint32_t: the entries that are used. An entry belongs to one g of the runtime for the process's
 * whole life (the runtime never frees a g); goroutines that follow each other on one g use it in turn. An entry's state is
 * changed only by the thread that changes the state of its g, so by one at a time. */
#define HB_GO_REASONS 64
#define HB_GO_HOOK 300 /* the least hook id of Go's waits; hb_go_config.hooks holds differences to it */
struct hb_go_config {
  uint64_t segment;     /* address of hb_header */
  uint64_t table;       /* address of hb_go_table */
  uint64_t clock;       /* address of the vDSO's clock_gettime; 0: system call */
  uint64_t status_rest; /* where each hook goes on: the instructions that its jump displaced */
  uint64_t enter_rest;
  uint64_t exit_rest;
  uint64_t quit_rest;
  uint64_t handler;     /* the runtime's own handler of the sampling signal */
  uint32_t g_m, m_gsignal; /* offsets in the runtime's structs; the assembly in hook.h uses these two */
  uint32_t m_curg, m_procid, g_goid, g_reason, g_startpc, g_pc, g_bp, g_stack_lo, g_stack_hi;
  uint32_t entries;     /* of the table, a power of two */
  uint32_t proc_slot, proc_uid, thread_slot;
  uint32_t uid;         /* of the thread slot that stands for the runtime: writes what belongs to no goroutine */
  uint32_t cookie;      /* si_value of our signals, its low half; the high half is the CPU time they stand for, in us */
  uint64_t preempt;     /* runtime.asyncPreempt: a thread there stood where its stack says */
  uint64_t image, image_end; /* of the code itself */
  /* code of the runtime and of package sync: a wait's stack begins at the first frame outside. lo == hi: none */
  uint64_t leaf0_lo, leaf0_hi, leaf1_lo, leaf1_hi, leaf2_lo, leaf2_hi, leaf3_lo, leaf3_hi;
  uint8_t hooks[HB_GO_REASONS]; /* by wait reason: the hook id of such waits - HB_GO_HOOK, 0 = not recorded */
};

struct hb_go_table {
  /* written by any thread of the process (relaxed adds) */
  _Atomic uint64_t events;     /* changes of state that were seen while recording */
  _Atomic uint64_t short_waits; /* waits below the threshold: not recorded */
  _Atomic uint64_t short_ns;   /* their sum */
  _Atomic uint64_t lost;       /* records dropped */
  _Atomic uint64_t full;       /* changes of goroutines that found no entry */
  _Atomic uint64_t busy;       /* changes that came where no hook can run: on the signal stack */
  _Atomic uint32_t silent;     /* the recorder was not heard at the last change of state */
  uint32_t pad0;
  _Atomic uint64_t heard_ns;   /* since when it is heard again: what began before is not known */
  _Atomic uint64_t goroutines; /* created while recording */
  _Atomic uint64_t samples;  /* CPU samples taken */
  _Atomic uint64_t strays;   /* of them, on threads without a goroutine of the runtime's */
  uint64_t scratch[4];       /* the recorder's, while the program is stopped */
  _Atomic uint32_t used;     /* entries that belong to a g: the first so many numbers of the list behind the entries */
  _Atomic uint32_t left;     /* waits that had not ended at the process's exit, and left no record */
};

enum { HB_GO_UNKNOWN, HB_GO_RUNNABLE, HB_GO_RUNNING, HB_GO_SYSCALL, HB_GO_WAITING, HB_GO_READY, HB_GO_DEAD };

struct hb_go_entry {
  _Atomic uint64_t g;        /* 0: free. CAS by whoever meets the g first; never changes then */
  _Atomic uint32_t uid;      /* thread uid of the goroutine; 0: it has written nothing yet */
  _Atomic uint32_t seq;      /* records written or dropped behind its THREAD record */
  _Atomic uint64_t since_ns; /* of WAITING, READY, SYSCALL: when the wait or the call began */
  _Atomic uint64_t ready_ns; /* of READY, RUNNABLE: when it could run again */
  _Atomic uint64_t born_ns;  /* 0: not seen */
  _Atomic uint64_t wait_ns;  /* of all its waits, recorded or not */
  _Atomic uint64_t cpu_ns;   /* that its samples stand for */
  _Atomic uint64_t queue_ns; /* that it was runnable and did not run */
  _Atomic uint64_t object;
  _Atomic uint32_t waits;
  _Atomic uint32_t waker;    /* of READY: thread uid of who made it runnable, 0 nobody */
  _Atomic uint32_t creator;  /* thread uid */
  uint8_t state;             /* HB_GO_* */
  uint8_t recorded;          /* of READY: the wait is long enough for a record */
  uint16_t hook;             /* of READY: by reason */
};

/* ---- handing over the segment, over a SEQPACKET socket ----
 * The agent says first that it is of the session (hb_ask). The collector answers whoever does with one message: the memfd
 * attached, and behind it that of the unwind tables (unwind/modules.h) when tables_bytes is not 0. Each side shows the
 * other one of the session's two secrets, which stand in the environment variable with the socket's name: so nobody else
 * gets the segment, and nobody who takes the name after the session's end gets a process.
 * The agent answers with one hb_ready; without a readable answer the collector assumes that the process went away.
 * A process that is about to exec a program without a loader asks with exec_fd (hooks/follow.h). The collector answers with
 * segment_bytes 0 and no descriptor when it has taken hold of the process, or does not want to. The kernel closes the
 * socket in an exec. Where that fails the process sends one byte, and goes on when the other side has closed.
 * With tables, the collector then sends one more message, of any content, when the process's are published; the agent
 * waits for it for HB_TABLES_WAIT_MS, closes and goes on. */
#define HB_TABLES_WAIT_MS 100
#define HB_SECRET_BYTES 16
struct hb_ask {
  uint64_t magic;
  uint8_t secret[HB_SECRET_BYTES]; /* the first of the session's */
  uint32_t exec_fd;                /* 0: the segment is asked for. n + 1: the process is about to exec the file that is its descriptor n */
  uint32_t pad0;
};
struct hb_hello {
  uint64_t magic;
  uint32_t version;
  uint32_t host_pid;
  uint64_t segment_bytes;
  uint64_t tables_bytes; /* of the second descriptor; 0: there is none */
  uint8_t secret[HB_SECRET_BYTES]; /* the second */
};
struct hb_ready {
  uint64_t magic;
  uint32_t version;
  uint32_t refused; /* HB_REFUSE_*, 0 = attached */
  uint32_t proc_slot;
  uint32_t proc_uid;
};
enum { HB_REFUSE_NO, HB_REFUSE_VERSION, HB_REFUSE_MMAP, HB_REFUSE_NO_SLOT, HB_REFUSE_UNRESOLVED };

/* ---- attaching to a program that runs (package attach, agent/attached.h) ----
 * hb_join lies in the agent's memory. The attacher writes it from outside, state last; the first hook call takes the
 * session from the socket, as hb_hello with its descriptors, and answers in the last fields, state last. */
enum { HB_JOIN_NOT, HB_JOIN_READY, HB_JOIN_BUSY, HB_JOIN_DONE, HB_JOIN_REFUSED };
struct hb_join {
  uint32_t state;         /* HB_JOIN_* */
  uint32_t pid;           /* of the program, as it sees itself */
  uint32_t tid_offset;    /* from a thread's pointer to the thread id that its C library keeps */
  uint32_t is_glibc;
  int32_t socket, peer;   /* in the program: the hello is read from socket; both are closed then */
  uint64_t socket_ino, peer_ino; /* by which they are known to be these still */
  uint64_t vdso, random;  /* of the auxiliary vector */
  uint64_t restorer;      /* how the program's own handler returns, where it was set while we were there */
  uint64_t thread_start, thread_start_end; /* the first function of new threads, in the thunks' page */
  uint32_t refused;       /* HB_REFUSE_* */
  uint32_t proc_slot, proc_uid;
  uint32_t reserved;
};

/* hb_record lies behind the thunks, which stay in a program for ever. It says what is mapped there, for whoever has to
 * take it back: the recorder, or another one when that was killed. The magic is written last. */
#define HB_RECORD_MAGIC 0x316b6e7568746268ull /* "hbthunk1" */
#define HB_RECORD_OLD 8
/* Memory of one agent. */
struct hb_area {
  uint64_t at, bytes; /* 0: none */
  uint64_t text, text_bytes;
  uint64_t join, leave; /* its struct hb_join, its hb_leave */
  uint64_t starts, starts_bytes; /* what new threads are handed; where no first word is set, none is on its way */
};
struct hb_record {
  uint64_t magic;
  uint32_t version;    /* of the layout of thunks, table and record */
  uint32_t done;       /* 1: the stub has run */
  int32_t socket, peer; /* the stub made them */
  uint32_t recorder, patched; /* pid of the recorder in force; 1: slots lead to thunks */
  uint64_t recorder_start; /* field 22 of its /proc/PID/stat */
  struct hb_area now;
  /* HB_RECORD_OLD struct hb_area follow: those that could not be unmapped, since a thread was asleep in them */
};

/* ---- the dormant agent (agent/dormant.c) ----
 * A preloaded object that wraps nothing. An attacher finds its exported hb_dormant, writes work into the bell and the real
 * functions into the table, and leads calls of the program to the ring, one entry a hook. The first call that arrives does
 * the work and goes on to the real function. The version changes with anything below. */
#define HB_DORMANT_MAGIC 0x31746e6d726f6468ull /* "hdormnt1" */
#define HB_DORMANT_VERSION 1
#define HB_RING_BYTES 16   /* of an entry */
#define HB_RING_ENTRIES 500
struct hb_dormant {
  uint64_t magic;
  uint32_t version, bytes; /* HB_DORMANT_VERSION; of this structure */
  uint64_t bell;           /* address of struct hb_bell, 0: it could not be mapped; a fork child finds it zeroed */
  uint64_t ring, table;    /* of HB_RING_ENTRIES entries, and of as many addresses */
};
enum { HB_BELL_MAP = 1, HB_BELL_CALL, HB_BELL_STORE, HB_BELL_FUNC };
struct hb_bell_op {
  uint32_t kind; /* HB_BELL_* */
  uint32_t undo; /* a mapping that is taken back when a later one fails */
  uint64_t nr;   /* of the system call; the address of a store; the function of a call */
  uint64_t a0, a1, a2, a3, a4, a5;
};
#define HB_BELL_OPS 16
struct hb_bell {
  uint32_t asked; /* attacher: number of the request, 0: none */
  uint32_t taken; /* program: number of the request that a thread has begun */
  uint32_t done;  /* program: number of the request that has ended */
  uint32_t failed; /* program: 1 + the operation that failed; HB_BELL_WITHDRAWN */
  uint32_t pid;   /* attacher: of the program, as it sees itself */
  uint32_t count; /* attacher: of operations */
  /* HB_BELL_OPS struct hb_bell_op follow */
};
#define HB_BELL_WITHDRAWN 1000

#endif
