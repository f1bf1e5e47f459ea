/* state.h: what the agent knows: of the process (struct hb_process), of each thread (struct hb_tls and
 * struct hb_local), and the functions behind the wrappers (hb_real).
 *
 * fork copies all of it into a child that is a process of its own. Two things keep the child honest: hb_wipe
 * lies on a page that the kernel zeroes in fork children (MADV_WIPEONFORK: fork, _Fork and raw clone alike,
 * before any atfork handler), and everything keyed by address (sampled allocations, lock tables) lies on
 * such pages too. A vfork child shares memory with its suspended parent: the page is not wiped, and what it
 * does is recorded as its parent's, except where the thread id matters (syscallproxy, _exit). */
#ifndef HB_STATE_H
#define HB_STATE_H

#include "agent/elf.h"
#include "agent/os.h"
#include "segment/layout.h"

struct hb_frame {
  uint64_t pc; /* HB_PC_* in the top four bits */
  uint64_t at; /* address of the stack slot that holds this return address; identity of the callee's call */
  uint64_t verify[2]; /* struct hb_kept of unwind/verify.h says what */
};

struct hb_local; /* private memory of a recorded thread: unwind/delta.h */

enum { HB_TLS_DEAD = 1, /* the thread has said goodbye: what still runs on it passes through */
       HB_TLS_UNSLOTTED = 2, /* no slot was free: passes through, counted once */
       HB_TLS_FRESH = 4, /* its private memory has never been touched */
       HB_TLS_ALONE = 8, /* its private memory is a mapping of its own, without room for locks that are held */
       HB_TLS_LENT = 16, /* our signal is blocked to the program, and not to the kernel (sampler/lend.h) */
       HB_TLS_BLOCKED = 32, /* the target has our signal blocked */
       HB_TLS_SMALL = 64, /* its alternate signal stack has no room for our handler (sampler/altstack.h) */
       HB_TLS_MOVED = 128 /* HB_TLS_BLOCKED is about the second sampling signal (sampler/move.h) */ };

/* Initial-exec thread-local state: zero on a new thread, copied on fork. At most 256 bytes, since an agent
 * that is loaded late finds little static TLS left. */
struct hb_tls {
  /* read and written by every hook */
  uint64_t tick;        /* header.tick at the last sample; the gate */
  uint64_t alloc_left;  /* bytes until the next sampled allocation; a request of as many goes the long way */
  uint64_t alloc_objects;
  uint64_t free_objects;
  uintptr_t shallowest; /* highest stack pointer seen by a hook since the last stack was taken */
  struct hb_thread *slot;
  struct hb_local *local;
  uint64_t alloc_given; /* bytes put into alloc_left so far: bytes asked for = given - left */
  struct hb_outer outer; /* frame of the outermost proxied call (syscallproxy/proxy.h) */
  uint64_t outer_stamp; /* hb_stamp() when it was entered */
  uintptr_t stack_lo, stack_hi; /* bounds of the stack; hi == 0: unknown */
  uint64_t alloc_period; /* mean gap in force for this thread */
  uint64_t alloc_tick;  /* tick of its last sampled allocation */
  uint64_t random;      /* xorshift state, never 0 once set */
  uint64_t enter_tick;  /* tick of the last sample taken at a parking call's entry */
  uint64_t cpu_bound;   /* hb_stamp() before which the next sampling point cannot have been reached (sampler/points.h) */
  uint64_t cpu_next;    /* thread CPU time of that point */
  uint64_t cpu_stratum; /* where the stratum behind the next point's begins */
  uint64_t left_pc;     /* return address of the proxied call that was left last: where this run of work began */
  uint64_t left_stamp;  /* hb_stamp() when that was */
  uintptr_t busy_sp;    /* in the agent's own capture or emission: where it was entered; a signal then defers. 0: not in it */
  uint32_t wait_threshold_ns; /* in force for this thread: waits shorter than this are only counted */
  uint32_t wait_tick;   /* of its last recorded wait or release, low half */
  uint16_t wait_credit; /* waits and releases that may be recorded before their thresholds grow */
  uint16_t alloc_credit; /* allocation samples that may be taken before the period grows */
  uint32_t cpu_length;  /* ns of the stratum that the next point lies in */
  uint32_t uid;
  uint32_t deferred;    /* HB_ASK_* that a signal could not sample because of busy_sp, and its HB_RECF_* << 8 */
  uint32_t tid;         /* of the thread that joined: what its slot says is others' to write as well */
  uint32_t flags;       /* HB_TLS_* */
  uint32_t subbuf;      /* where the last record went */
  uint32_t holds;       /* 1 + sub-buffer whose lock this thread holds; 0 none */
  uint16_t need_full;   /* the next stack must stand alone */
  uint16_t announced;   /* the THREAD record has been written */
  uint16_t debt_shift;  /* releases are recorded from release_debt_ns << debt_shift on */
  uint16_t holding;     /* a bit for each entry of hb_holds that may be in use */
  uint32_t proxy_depth; /* proxied calls under way on this stack */
  uint32_t rest;        /* HB_RUNNING, or HB_MASKED while HB_TLS_BLOCKED or HB_TLS_SMALL: hb_rest_set */
  uint32_t waiting;     /* 1 + lock bucket that this thread is counted in as a waiter; 0 none */
  uint32_t seq;
  uint32_t hold_spent;  /* tick, low half, in which no more acquisitions of hot locks are noted (hooks/hold.h) */
  uint32_t ended;       /* hb_ended_mark of a call that a signal ended which would not have, without us (hooks/again.h); 0: none */
};
_Static_assert(sizeof(struct hb_tls) <= 256, "static TLS is scarce");

#ifndef HB_ATTACHED
static __thread struct hb_tls hb_tls __attribute__((tls_model("initial-exec")));
#endif

/* Memory that a fork child finds zeroed. */
#define HB_FREE_FILTER 4096 /* bytes; a sampled live allocation counts in one of them */
#define HB_ORPHAN_FREES 64
#define HB_LOCK_BUCKETS 4096
#define HB_HOT 0x80000000u

struct hb_lock_bucket {        /* one cache line; several locks may share it: readers check `object` */
  _Atomic uint64_t object;     /* lock of the baton below */
  _Atomic uint64_t release_ns; /* when it was last let go while somebody waited */
  _Atomic uint64_t releaser;   /* by which thread uid */
  _Atomic uint64_t check;      /* object ^ release_ns ^ releaser: a torn baton does not verify */
  _Atomic uint64_t since_ns;   /* since when somebody waits */
  _Atomic uint64_t debt_ns;    /* delay caused since the last release that was recorded */
  uint64_t pad[2];
};

/* Read when a hot lock is taken and released, so not in the line that releases write. */
struct hb_hotness {
  _Atomic uint64_t since; /* stamp since when acquisitions are noted (hooks/hold.h), while waiters[] has HB_HOT */
  _Atomic uint64_t tick;  /* tick of the last recorded wait for a lock */
};

/* Who wrote to a descriptor, and what polls are told (hooks/handoff.h). */
#define HB_NOTES 256
#define HB_WATCHES 512
#define HB_PAIRS 64
struct hb_note {           /* written by every write to its descriptor */
  _Atomic uint64_t stamp;  /* when the last write to fd was begun; 0: none, or half-written */
  _Atomic uint64_t before; /* the one before; UINT64_MAX: of another descriptor */
  _Atomic uint32_t fd;     /* + 1 */
  _Atomic uint32_t thread; /* uid */
} __attribute__((aligned(32))); /* two to a cache line */
struct hb_identity { /* what the kernel last said that a descriptor is */
  _Atomic uint64_t key;   /* its inode; of a pipe, mixed with its device */
  _Atomic uint64_t asked; /* stamp of the question */
  _Atomic uint64_t what;  /* fd + 1, and its type << 32 */
  _Atomic uint64_t check; /* hb_identity_check() of these; anything else: half-written, or closed since */
};
struct hb_watch {
  _Atomic uint64_t data;
  _Atomic uint32_t epoll, fd; /* fd + 1 */
};
struct hb_pair { /* of sockets */
  _Atomic uint64_t ino[2];
};

/* Private memory of HB_SLAB threads with neighbouring slots (agent/local.h). */
#define HB_SLAB 32u
#define HB_SLAB_BUSY 0x80000000u
struct hb_slab {
  _Atomic(struct hb_local *) base; /* NULL until one of them joins */
  _Atomic uint32_t users;          /* or HB_SLAB_BUSY: its pages are being given back */
  _Atomic uint32_t used;           /* a bit each: its pages may have been written */
  _Atomic uint32_t taken;          /* a bit each: a thread of this process has it, whatever the slot says */
};

/* The GIL of the process's Python (hooks/gil.h): written under its mutex, but for `waiting` by threads that give it up. */
struct hb_gil_state {
  _Atomic uint32_t holder, holder_tid; /* thread uid and tid; 0: nobody, or not seen */
  _Atomic uint32_t dropper;            /* uid of the thread that dropped it last */
  _Atomic uint32_t waiting;            /* threads that want it */
  _Atomic uint64_t taken_ns, dropped_ns;
  _Atomic uint64_t since_ns;           /* since when somebody waits */
  _Atomic uint64_t debt_ns;            /* delay caused since the last drop that was recorded with its stack */
};

struct hb_wiped {
  _Atomic uint32_t alive; /* 1 in the process that attached or claimed; 0 in a fork child that has not yet */
  uint32_t pad[15];
  _Atomic uint32_t waiters[HB_LOCK_BUCKETS]; /* threads waiting for an object of this bucket, and HB_HOT */
  _Atomic uint8_t free_filter[HB_FREE_FILTER];
  _Atomic uint64_t orphan_free[HB_ORPHAN_FREES]; /* freed by threads that write no records any more: hooks/alloc.h */
  _Atomic uint32_t orphan_frees; /* of them in use; may be more for a moment */
  uint32_t pad2[15];
  struct hb_lock_bucket locks[HB_LOCK_BUCKETS]; /* from here on nothing is touched before the process is attached */
  struct hb_hotness hot[HB_LOCK_BUCKETS];
  /* Of the waiters, how many a recorded signal of a condition may have woken already (hooks/cond.h) */
  _Atomic uint32_t woken[HB_LOCK_BUCKETS];
  _Alignas(64) struct hb_note notes[HB_NOTES];
  _Atomic uint64_t noted[HB_NOTES / 64]; /* a bit for each note that was ever made */
  _Atomic uint16_t unfound[HB_NOTES]; /* by waiter's descriptor: waits to pass over, and log2 of the next such number << 8 */
  struct hb_identity identities[HB_NOTES];
  struct hb_watch watches[HB_WATCHES];
  struct hb_pair pairs[HB_PAIRS];
  _Atomic uint32_t pairs_next;
  struct hb_gil_state gil;
  _Atomic uint64_t codes[HB_PY_CODES]; /* functions of Python that have an id (python/names.h); untouched without Python */
};

#define HB_WAIT_LONG_NS 10000000 /* a wait or call of so long is recorded whatever the budget */
#define HB_WAIT_ALWAYS_NS 50000 /* a wait of so long is always recorded (hooks/wait.h) */

/* the beginning of the kernel's siginfo_t (include/uapi/asm-generic/siginfo.h, _rt) */
struct hb_siginfo {
  int32_t signo, error, code, pad;
  int32_t pid, uid;
  int32_t value, value_high;
};

union hb_siginfo_whole {
  struct hb_siginfo info;
  char room[128];
};

/* sigaction as the kernel takes it */
struct hb_sigaction {
  void *handler;
  unsigned long flags;
  void *restorer;
  uint64_t mask;
};

#define HB_FLIGHTS 32
#define HB_ACTIONS 8
#define HB_HANDLER_BYTES 2048 /* of stack that our handler needs; internal/testprog/src/tinyalt.c measures it */

/* The directory that the agent was loaded from, as the environment names it. ino 0: unknown */
struct hb_home {
  uint64_t uid, userns, dev, ino;
};

/* Addresses of the GIL and of its parts; 0: not known (yet). */
struct hb_gil {
  _Atomic uint64_t at, cond, switch_cond, mutex;
};

struct hb_process {
  struct hb_header *header; /* the segment's, or hb_no_header before attach: tick 0, hooks take no samples */
  struct hb_wiped *wiped;   /* never NULL once initialised: see hb_no_wiped */
  _Atomic uint64_t *alloc_table; /* addresses of sampled live allocations, wiped on fork; NULL: not tracked */
  uint32_t alloc_mask;
  uint32_t pid;             /* of the process that claimed the slot; private, as is each thread's tid */
  char *base;               /* segment */
  struct hb_proc *procs;
  struct hb_thread *threads;
  struct hb_subbuf *subbufs;
  char *ring;
  uint64_t ring_bytes;
  uint32_t ring_count, threads_cap, procs_cap;
  struct hb_proc *slot;
  uint32_t slot_index, uid;
  struct hb_home home;
  _Atomic uint32_t on;      /* 1: attached and recording */
  uint32_t features;
  uint32_t confined; /* 1: it has been about to confine its system calls (hooks/cond.h); what it execs is, too */
  _Atomic uint32_t signal;  /* in force for this process */
  uint32_t cookie;
  _Atomic uint32_t moves;   /* how often another signal may still be tried (sampler/move.h) */
  _Atomic uint32_t moved;   /* HB_TLS_MOVED when it is the second one; 0 */
  _Atomic uint32_t moving;  /* 1: a thread is choosing another signal */
  _Atomic uint32_t lent;    /* 1: a thread has lent the signal (sampler/lend.h) */
  uint64_t tick_ns, alloc_period, call_threshold, wake_threshold; /* thresholds in stamps */
  uint64_t cpu_period_ns;
  _Atomic uint32_t flights[HB_FLIGHTS]; /* signals that came from another CPU, by how long they took (sampler/flight.h) */
  _Atomic uint32_t flights_none;        /* and such as did not meet their thread running on its way */
  uint64_t stamps_mult;       /* stamps = ns * stamps_mult >> 20 */
  uint64_t lock_threshold_ns, release_debt_ns;
  uintptr_t main_stack_lo, main_stack_hi;
  uintptr_t self_lo, self_hi; /* our own text: never part of a stack */
  uintptr_t malloc_lo, malloc_hi; /* the object that malloc comes from */
  uintptr_t start_lo, start_hi; /* of it, the function that threads start in: a stack is complete there */
  uint64_t default_stack;     /* bytes of a thread stack made without attributes */
  int (*lock_fast)(void *);   /* the real pthread_mutex_lock once the layout was recognised, else NULL */
  uint32_t mutex_peek;        /* 1: glibc's mutex layout was recognised by the start-up check */
  uint32_t cond_peek;         /* the same for condition variables */
  uint32_t jump_kind;         /* how the C library keeps the stack pointer in a jmp_buf: HB_JUMP_* (hooks/jump.h) */
  uint32_t is_glibc;
  _Atomic uint32_t slot_hint; /* where to begin to look for a free slot */
  _Atomic uint32_t claims;
  _Atomic uint64_t silent_beat; /* the heartbeat since which nobody reads, and nothing is recorded; 0: somebody does */
  _Atomic uint32_t unsent; /* signals that were announced and never came (syscallproxy/proxy.h) */
  uint32_t gate_stuck;     /* 1: the sampler has not answered before an exec; it is not waited for again */
  struct hb_sigaction app_actions[HB_ACTIONS]; /* what the target believes to have installed for our signal: the newest of them, */
  _Atomic uint32_t app_action_made, app_action_now; /* whose number is the second of these (sampler/action.h) */
  _Atomic uint32_t own_use; /* 1: the target has sent the signal to a thread that had lent it */
  _Atomic uint32_t given_up; /* 1: our handler is not there any more, for good: nobody sends us the signal */
  _Atomic uint64_t ignored_at; /* stamp of the last signal that the target ignores and our handler took; 0: none */
  _Atomic uint32_t ends_unexplained; /* calls that ended with EINTR for no reason that was found (hooks/again.h) */
  uint64_t signal_stack;    /* bytes that an alternate signal stack must have for the kernel's frame and our handler */
  struct hb_gil gil;
  struct hb_slab *slabs;
  _Atomic uint64_t resolved;  /* 1: hb_real is filled */
};

#ifndef HB_ATTACHED
static struct hb_header hb_no_header;
#else
static struct hb_header hb_no_header = {.tick = 1}; /* the first hook call of each thread sees that it moved, and joins */
#endif
/* Before attach: only as much as is read by then, since a program may run under a limit on its addresses. */
static _Alignas(64) char hb_no_wiped[offsetof(struct hb_wiped, locks)];
static struct hb_process hb = {.header = &hb_no_header, .wiped = (struct hb_wiped *)(void *)hb_no_wiped};

#ifndef HB_ATTACHED
HB_INLINE struct hb_tls *hb_self(void) { return &hb_tls; }
#else
#include "agent/hashed.h"
#endif

/* The outermost call, by when it began; never 0. */
HB_INLINE uint32_t hb_ended_mark(uint64_t began) { return (uint32_t)began | 1; }

/* Set or clear one of the reasons for which a thread is never signalled. */
HB_INLINE void hb_rest_set(struct hb_tls *t, uint32_t reason, int on) {
  t->flags = on ? t->flags | reason : t->flags & ~reason;
  t->rest = t->flags & (HB_TLS_BLOCKED | HB_TLS_SMALL) ? HB_MASKED : HB_RUNNING;
}

/* Count a doubt of this process. signal-safe */
#define HB_COUNT(field)                                               \
  do {                                                                \
    if (hb.slot) hb_add_relaxed(&hb.slot->field, (uint64_t)1);        \
  } while (0)

#endif
