//go:build ignore

/* sched: when each thread of the session is off a CPU, why, and who woke it. Loaded into the kernel by Go (load.go).
 *
 * One record for each time that a thread was off a CPU: taken off at sched_switch, with its kernel and user stack; runnable
 * again at sched_waking, with the waker; back on at the next sched_switch, where the record goes out if it lasted
 * threshold_ns. The state in between lies in `threads`, by thread id. `procs` holds the processes of the session; children
 * join at their fork. While `armed_tgid` is set, so do the children of that process: the launcher's command is in from
 * its first instruction.
 *
 * Everything runs with interrupts off under the run-queue lock: no loops but the kernel's stack walks, no waiting.
 * Nothing outlives the descriptors that Go holds: when it is killed, the kernel unloads all of it. */

#include "kernel/types.bpf.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL"; /* the stack helpers are for GPL-compatible programs */

enum { KERNEL_FRAMES = 24, USER_FRAMES = 48, MAX_THREADS = 16384, MAX_PROCS = 8192, RING_BYTES = 8 << 20 };

/* Set before loading. */
const volatile __u64 threshold_ns = 0;
const volatile __u8 with_stacks = 1;

/* Set while running. */
__u32 armed_tgid = 0;

/* Counts, for the account. */
__u64 lost = 0;     /* records that found the ring full */
__u64 unheld = 0;   /* times off a CPU that found `threads` full */
__u64 records = 0;

enum kind { KIND_OFF = 1, KIND_EXIT = 2 };

/* A record in the ring. The frames follow it: first the kernel's, leaf first, then the user's, leaf first. */
struct off {
  __u64 off_ns, wake_ns, on_ns; /* CLOCK_MONOTONIC; wake_ns 0: nobody woke it, it was runnable all the time */
  __u32 tgid, tid;
  __u32 waker_tgid, waker_tid; /* in the initial pid namespace; 0: the idle task */
  __u32 state;                 /* task state when taken off, as TASK_…; 0: runnable (preempted) */
  __u16 off_cpu, on_cpu;
  __u8 kind, in_interrupt, fresh; /* fresh: it had not run before */
  __u8 kernel_frames, user_frames;
  __u8 pad[3];
};

/* Most of what a busy thread waits for is over in microseconds and not sent: then its stacks were taken for nothing, and
 * they are most of the cost. After STACKLESS short ones in a row only every STACK_EVERY-th gets stacks, until one is long
 * again; that one has none. */
enum { STACKLESS = 4, STACK_EVERY = 16 };

struct thread {
  struct off rec;
  __u64 frames[KERNEL_FRAMES + USER_FRAMES];
  __u32 shorts; /* in a row */
};

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, MAX_THREADS);
  __type(key, __u32);
  __type(value, struct thread);
} threads SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, MAX_PROCS);
  __type(key, __u32);
  __type(value, __u8);
} procs SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_RINGBUF);
  __uint(max_entries, RING_BYTES);
} ring SEC(".maps");

/* A thread to copy into `threads`: too large for the stack. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct thread);
} blank SEC(".maps");

/* How deep this CPU is in interrupts that wake: timers, softirqs, device handlers. */
struct {
  __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, __u32);
} interrupts SEC(".maps");

struct off unused_off __attribute__((unused)); /* for bpf2go */

static __always_inline int ours(__u32 tgid) { return bpf_map_lookup_elem(&procs, &tgid) != NULL; }

static __always_inline __u32 state_of(struct task_struct *t) {
  struct task_struct___old *old = (void *)t;
  if (bpf_core_field_exists(t->__state)) return t->__state;
  return (__u32)BPF_CORE_READ(old, state); /* before 5.14 */
}

/* The thread's entry, made if there is none. */
static __always_inline struct thread *entry(__u32 tid) {
  struct thread *th = bpf_map_lookup_elem(&threads, &tid);
  if (th) return th;
  __u32 zero = 0;
  struct thread *b = bpf_map_lookup_elem(&blank, &zero);
  if (!b) return NULL;
  if (bpf_map_update_elem(&threads, &tid, b, BPF_NOEXIST)) {
    __sync_fetch_and_add(&unheld, 1);
    return NULL;
  }
  return bpf_map_lookup_elem(&threads, &tid);
}

enum { TASK_DEAD = 0x80 };

static __always_inline void taken_off(void *ctx, struct task_struct *prev, __u32 state, __u64 now) {
  if (state & TASK_DEAD) return; /* for good: on_exit has told */
  __u32 tid = (__u32)prev->pid;
  struct thread *th = entry(tid);
  if (!th) return;
  struct off *r = &th->rec;
  r->off_ns = now;
  r->wake_ns = 0;
  r->on_ns = 0;
  r->tgid = (__u32)prev->tgid;
  r->tid = tid;
  r->waker_tgid = r->waker_tid = 0;
  r->state = state;
  r->off_cpu = (__u16)bpf_get_smp_processor_id();
  r->kind = KIND_OFF;
  r->in_interrupt = r->fresh = 0;
  r->kernel_frames = r->user_frames = 0;
  if (!with_stacks || (th->shorts >= STACKLESS && th->shorts % STACK_EVERY)) return;
  /* The thread is still current: these are its stacks. */
  long n = bpf_get_stack(ctx, th->frames, KERNEL_FRAMES * 8, 0);
  __u32 k = n > 0 ? (__u32)n / 8 : 0;
  if (k > KERNEL_FRAMES) k = KERNEL_FRAMES;
  r->kernel_frames = (__u8)k;
  n = bpf_get_stack(ctx, &th->frames[KERNEL_FRAMES], USER_FRAMES * 8, BPF_F_USER_STACK);
  r->user_frames = n > 0 ? (__u8)((__u64)n / 8) : 0;
}

static __always_inline void put_on(struct task_struct *next, __u64 now) {
  __u32 tid = (__u32)next->pid;
  struct thread *th = bpf_map_lookup_elem(&threads, &tid);
  if (!th || !th->rec.off_ns) return;
  struct off *r = &th->rec;
  r->on_ns = now;
  r->on_cpu = (__u16)bpf_get_smp_processor_id();
  if (now - r->off_ns < threshold_ns && !r->fresh) {
    th->shorts++;
  } else {
    th->shorts = 0;
    /* One length for all without user frames, one for those with: bounded lengths are simple to verify. */
    __u64 bytes = sizeof *r;
    if (r->user_frames)
      bytes = sizeof *r + sizeof th->frames;
    else if (r->kernel_frames)
      bytes = sizeof *r + KERNEL_FRAMES * 8;
    if (bpf_ringbuf_output(&ring, th, bytes, 0))
      __sync_fetch_and_add(&lost, 1);
    else
      __sync_fetch_and_add(&records, 1);
  }
  r->off_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next) {
  __u32 from = (__u32)prev->tgid, to = (__u32)next->tgid;
  int prev_ours = from && ours(from), next_ours = to && ours(to);
  if (!prev_ours && !next_ours) return 0;
  __u64 now = bpf_ktime_get_ns();
  if (prev_ours) taken_off(ctx, prev, preempt ? 0 : state_of(prev), now);
  if (next_ours) put_on(next, now);
  return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_waking, struct task_struct *p) {
  __u32 tid = (__u32)p->pid;
  struct thread *th = bpf_map_lookup_elem(&threads, &tid);
  if (!th || !th->rec.off_ns || th->rec.wake_ns || !th->rec.state) return 0;
  __u64 id = bpf_get_current_pid_tgid();
  th->rec.waker_tgid = (__u32)(id >> 32);
  th->rec.waker_tid = (__u32)id;
  __u32 zero = 0, *deep = bpf_map_lookup_elem(&interrupts, &zero);
  th->rec.in_interrupt = deep && *deep;
  th->rec.wake_ns = bpf_ktime_get_ns();
  return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(on_fork, struct task_struct *parent, struct task_struct *child) {
  __u32 from = (__u32)parent->tgid, tgid = (__u32)child->tgid;
  if (!ours(from)) {
    if (!armed_tgid || from != armed_tgid || tgid == from) return 0;
  }
  if (tgid != from) {
    __u8 one = 1;
    bpf_map_update_elem(&procs, &tgid, &one, BPF_ANY);
  }
  __u32 tid = (__u32)child->pid;
  struct thread *th = entry(tid);
  if (!th) return 0;
  struct off *r = &th->rec;
  __u64 now = bpf_ktime_get_ns();
  r->off_ns = r->wake_ns = now; /* runnable from now on */
  r->tgid = tgid;
  r->tid = tid;
  r->state = 0;
  r->waker_tgid = from;
  r->waker_tid = (__u32)parent->pid;
  r->off_cpu = (__u16)bpf_get_smp_processor_id();
  r->kind = KIND_OFF;
  r->in_interrupt = r->kernel_frames = r->user_frames = 0;
  r->fresh = 1;
  return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *p, int old_pid) {
  __u32 tid = (__u32)old_pid;
  if ((__u32)p->pid != tid) bpf_map_delete_elem(&threads, &tid);
  return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(on_exit, struct task_struct *p) {
  __u32 tgid = (__u32)p->tgid, tid = (__u32)p->pid;
  if (!ours(tgid)) return 0;
  struct off r = {.off_ns = bpf_ktime_get_ns(), .tgid = tgid, .tid = tid, .kind = KIND_EXIT};
  r.on_ns = r.off_ns;
  r.off_cpu = r.on_cpu = (__u16)bpf_get_smp_processor_id();
  if (bpf_ringbuf_output(&ring, &r, sizeof r, 0)) __sync_fetch_and_add(&lost, 1);
  bpf_map_delete_elem(&threads, &tid);
  /* The process is over when its last thread goes; the count is already without this one. */
  if (p->signal->live.counter == 0) bpf_map_delete_elem(&procs, &tgid);
  return 0;
}

static __always_inline void interrupt(int by) {
  __u32 zero = 0, *deep = bpf_map_lookup_elem(&interrupts, &zero);
  if (!deep) return;
  if (by > 0)
    (*deep)++;
  else if (*deep) /* the first that is seen may be an exit */
    (*deep)--;
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(on_irq) { interrupt(1); return 0; }
SEC("tp_btf/irq_handler_exit")
int BPF_PROG(on_irq_end) { interrupt(-1); return 0; }
SEC("tp_btf/softirq_entry")
int BPF_PROG(on_softirq) { interrupt(1); return 0; }
SEC("tp_btf/softirq_exit")
int BPF_PROG(on_softirq_end) { interrupt(-1); return 0; }
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_hrtimer) { interrupt(1); return 0; }
SEC("tp_btf/hrtimer_expire_exit")
int BPF_PROG(on_hrtimer_end) { interrupt(-1); return 0; }
