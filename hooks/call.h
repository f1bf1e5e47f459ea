/* call.h: the calls that can sleep. One line each: enter (sampled in a new tick, state BLOCKED, stamp), the real
 * call, leave (state RUNNING, an interval when it took longer than the threshold). errno is the real call's: all
 * that runs behind it makes raw system calls only. */
#ifndef HB_CALL_H
#define HB_CALL_H

#include "hooks/again.h"
#include "hooks/handoff.h"
#include "hooks/wait.h"

enum hb_hook_parks {
#define HB_HOOK(id, symbol, class, object, parks, version) HB_PARKS_##symbol = parks,
#include "hooks/table.h"
};

struct hb_call {
  struct hb_thread *slot; /* NULL: not recorded */
  struct hb_block block;
  uint64_t stamp; /* when it was made, or a signal on its way was waited for */
  uint64_t began; /* when the program called it: before the sample at its entry. How long it took, to the program */
  const void *ready; /* polls: what they filled in */
  uint64_t ready_n;
};

/* The sample at a call's entry. Returns when that began. hook path */
static HB_NOINLINE uint64_t hb_call_sampled(struct hb_tls *t, uint32_t hook, uint64_t object, int parks, const void *frame) {
  uint64_t began = hb_stamp();
  if (parks) hb_enter_gate(t, hook, object, frame);
  else hb_sample_hook(t, HB_SAMPLE_SYNC, hook, object, frame);
  return began;
}

HB_INLINE void hb_call_enter(struct hb_call *c, uint32_t hook, uint64_t object, int parks, const void *frame) {
  struct hb_tls *t = hb_self();
  c->slot = t->slot;
  if (HB_UNLIKELY(!c->slot || !hb_load_relaxed(&hb.wiped->alive))) {
    c->slot = NULL;
    if (!hb_thread_ready(t)) return;
    c->slot = t->slot;
  }
  hb_saw_depth(t, (const void *)hb_frame_cfa(frame));
  uint64_t began = 0, timed = 0;
  if (HB_UNLIKELY(hb_own_passage(hb_load_relaxed(&c->slot->calls)))) timed = hb_stamp();
  if (HB_UNLIKELY(parks ? hb_enter_due(t) : hb_new_tick(t))) began = hb_call_sampled(t, hook, object, parks, frame);
  hb_block_enter(t, c->slot, &c->block, frame);
  if (HB_LIKELY(!c->block.passive)) hb_publish_in(c->slot, hook, object, 0, frame); /* otherwise a handler's, during a call that is published */
  c->stamp = hb_stamp();
  if (HB_UNLIKELY(timed != 0) && !began) hb_own_timed(c->slot, timed, c->stamp - c->block.waited, HB_OWN_PASSAGES);
  if (HB_UNLIKELY(hb_point_near(t, c->stamp))) {
    hb_sample_point(t, hook, 0, frame);
    c->stamp = hb_stamp();
  }
  c->stamp -= c->block.waited;
  c->began = HB_UNLIKELY(began != 0) ? began : c->stamp;
  if (!c->block.passive) hb_self()->outer_stamp = c->began;
}

/* Longer than the threshold: an interval. hook path */
static HB_NOINLINE void hb_call_slow(struct hb_tls *t, struct hb_thread *s, const struct hb_call *c, uint32_t hook,
                                     uint64_t object, int64_t e, const void *frame) {
  hb_store_relaxed(&s->calls_slow, hb_load_relaxed(&s->calls_slow) + 1);
  uint64_t knob = hb_load_relaxed(&hb.header->knob_call_ns);
  if (HB_UNLIKELY(knob) && hb_stamp_ns(c->began, hb_stamp()) < (knob < HB_WAIT_LONG_NS ? knob : HB_WAIT_LONG_NS)) return;
  uint32_t flags = e == -HB_EINTR ? HB_RECF_INTERRUPTED : e == -HB_EAGAIN ? HB_RECF_TIMEDOUT : e < 0 ? HB_RECF_FAILED : 0u;
  struct hb_interval i = {hook, flags, 0, 0, object, 0, 0, c->began, e};
  struct hb_from from = {0};
  if (HB_LIKELY(!(hb_load_relaxed(&hb.header->knob_flags) & HB_KNOB_NO_WRITERS))) hb_handoff(t, hook, object, e, c->stamp, c->ready, c->ready_n, &from);
  if (from.thread) {
    i.releaser = from.thread;
    i.release_ns = hb_now_ns() - hb_stamp_ns(from.stamp, hb_stamp());
    if (from.only) i.flags |= HB_RECF_ONLY;
    if (from.fd != object) i.object2 = from.fd;
  }
  hb_emit_interval(t, &i, frame);
}

/* How a call says that it failed: -1 and errno, the error itself, or not in a way that is looked at. */
enum { HB_ERRNO, HB_ERROR, HB_VALUE };

HB_INLINE void hb_call_left(struct hb_call *c, uint32_t hook, uint64_t object, int64_t r, int style, uint64_t threshold,
                            const void *frame) {
  struct hb_tls *t = hb_self();
  struct hb_thread *s = c->slot;
  if (HB_UNLIKELY(!s || t->slot != s)) return; /* not recorded, or a fork child came back from its parent's call */
  uint64_t stamp = hb_stamp();
  t->left_pc = ((const uint64_t *)frame)[1];
  t->left_stamp = stamp;
  if (HB_UNLIKELY(hb_point_near(t, stamp))) hb_sample_inside(t, hook, frame);
  int64_t took = (int64_t)(stamp - c->began);
  hb_block_leave(t, s, &c->block);
  if (HB_LIKELY(!c->block.passive)) hb_store_relaxed(&s->in_hook, 0u);
  uint64_t calls = hb_load_relaxed(&s->calls);
  hb_store_relaxed(&s->calls, calls + 1);
  if (HB_UNLIKELY(hb_own_passage(calls))) hb_own_timed(s, t->left_stamp, hb_stamp(), HB_OWN_PASSAGES);
  if (HB_UNLIKELY(took > 0 && (uint64_t)took >= threshold))
    hb_call_slow(t, s, c, hook, object, style == HB_ERRNO ? hb_result(r) : style == HB_ERROR ? -r : 0, frame);
}

HB_INLINE void hb_call_leave(struct hb_call *c, uint32_t hook, uint64_t object, int64_t r, int style, const void *frame) {
  hb_call_left(c, hook, object, r, style, hb.call_threshold, frame);
}

/* The C name differs from the exported one, so that no header's declaration can disagree. again: the call once more
 * (hooks/again.h); began, rest: when it was made, and room for a time */
#define HB_CALL_AGAIN(type, symbol, object, failure, params, args, again)                  \
  HB_EXPORT type hb_call_##symbol params __asm__(#symbol);                                 \
  HB_EXPORT HB_NOINLINE type hb_call_##symbol params {                                     \
    HB_UNWIND_SCOPE;                                                                       \
    typedef type(*fn) params;                                                              \
    fn real = HB_REAL(fn, symbol);                                                         \
    struct hb_call c;                                                                      \
    if (HB_UNLIKELY(!real)) return (type)hb_fail(HB_ENOSYS);                               \
    hb_call_enter(&c, HB_HOOK_##symbol, (uint64_t)(object), HB_PARKS_##symbol, HB_FRAME);  \
    type r = real args;                                                                    \
    while (HB_UNLIKELY(failure) && c.slot && hb_ended(HB_HOOK_##symbol, c.began, HB_FRAME)) {                          \
      struct hb_timespec left;                                                             \
      uint64_t made = c.stamp;                                                             \
      (void)left, (void)made;                                                              \
      r = again;                                                                           \
    }                                                                                      \
    hb_call_leave(&c, HB_HOOK_##symbol, (uint64_t)(object), (int64_t)r, HB_ERRNO, HB_FRAME); \
    return r;                                                                              \
  }
#define HB_CALL(type, symbol, object, params, args) HB_CALL_AGAIN(type, symbol, object, 0, params, args, r)
/* One that a socket's time-out may end (SO_RCVTIMEO, SO_SNDTIMEO), and so a signal. That time begins anew. */
#define HB_CALL_SOCKET(type, symbol, params, args) HB_CALL_AGAIN(type, symbol, FD, r == -1, params, args, real args)

/* Of the same passage as the call's entry (agent/own.h). hook path */
HB_INLINE void hb_call_note(const struct hb_call *c, uint32_t fd) {
  uint64_t from = HB_UNLIKELY(hb_own_passage(hb_load_relaxed(&c->slot->calls))) ? hb_stamp() : 0;
  hb_note_write(hb_self(), fd, c->stamp);
  if (HB_UNLIKELY(from != 0)) hb_own_timed(c->slot, from, hb_stamp(), HB_OWN_PASSAGES);
}

/* One that writes: whoever waits for it finds the note (hooks/handoff.h). */
#define HB_CALL_WRITE(type, symbol, params, args)                                          \
  HB_EXPORT type hb_call_##symbol params __asm__(#symbol);                                 \
  HB_EXPORT HB_NOINLINE type hb_call_##symbol params {                                     \
    HB_UNWIND_SCOPE;                                                                       \
    typedef type(*fn) params;                                                              \
    fn real = HB_REAL(fn, symbol);                                                         \
    struct hb_call c;                                                                      \
    if (HB_UNLIKELY(!real)) return (type)hb_fail(HB_ENOSYS);                               \
    hb_call_enter(&c, HB_HOOK_##symbol, FD, HB_PARKS_##symbol, HB_FRAME);                  \
    if (HB_LIKELY(c.slot != NULL)) hb_call_note(&c, FD);                  \
    type r = real args;                                                                    \
    while (HB_UNLIKELY(r == -1) && c.slot && hb_ended(HB_HOOK_##symbol, c.began, HB_FRAME)) r = real args; \
    if (HB_LIKELY(c.slot != NULL)) hb_note_done(FD);                                       \
    if (HB_UNLIKELY(r <= 0) && c.slot) hb_note_undo(hb_self(), FD, c.stamp);               \
    hb_call_leave(&c, HB_HOOK_##symbol, FD, (int64_t)r, HB_ERRNO, HB_FRAME);               \
    return r;                                                                              \
  }

/* One that fills in what was ready. */
#define HB_CALL_POLL(symbol, object, events, n, params, args, again)                       \
  HB_EXPORT int hb_call_##symbol params __asm__(#symbol);                                  \
  HB_EXPORT HB_NOINLINE int hb_call_##symbol params {                                      \
    HB_UNWIND_SCOPE;                                                                       \
    typedef int(*fn) params;                                                               \
    fn real = HB_REAL(fn, symbol);                                                         \
    struct hb_call c;                                                                      \
    if (HB_UNLIKELY(!real)) return (int)hb_fail(HB_ENOSYS);                                \
    c.ready = events;                                                                      \
    c.ready_n = (uint64_t)(n);                                                             \
    hb_call_enter(&c, HB_HOOK_##symbol, (uint64_t)(object), HB_PARKS_##symbol, HB_FRAME);  \
    int r = real args;                                                                     \
    while (HB_UNLIKELY(r == -1) && c.slot && hb_ended(HB_HOOK_##symbol, c.began, HB_FRAME)) {                          \
      struct hb_timespec left;                                                             \
      uint64_t made = c.stamp;                                                             \
      (void)left, (void)made;                                                              \
      r = real again;                                                                      \
    }                                                                                      \
    hb_call_leave(&c, HB_HOOK_##symbol, (uint64_t)(object), r, HB_ERRNO, HB_FRAME);        \
    return r;                                                                              \
  }

typedef int64_t hb_ssize;
typedef const void *hb_src; /* pointers that we only pass on */
typedef void *hb_dst;
#define FD (uint32_t)fd

HB_CALL_SOCKET(hb_ssize, read, (int fd, hb_dst p, size_t n), (fd, p, n))
HB_CALL_WRITE(hb_ssize, write, (int fd, hb_src p, size_t n), (fd, p, n))
HB_CALL_SOCKET(hb_ssize, readv, (int fd, hb_src v, int n), (fd, v, n))
HB_CALL_WRITE(hb_ssize, writev, (int fd, hb_src v, int n), (fd, v, n))
HB_CALL(hb_ssize, pread, FD, (int fd, hb_dst p, size_t n, int64_t at), (fd, p, n, at))
HB_CALL(hb_ssize, pwrite, FD, (int fd, hb_src p, size_t n, int64_t at), (fd, p, n, at))
HB_CALL(hb_ssize, pread64, FD, (int fd, hb_dst p, size_t n, int64_t at), (fd, p, n, at))
HB_CALL(hb_ssize, pwrite64, FD, (int fd, hb_src p, size_t n, int64_t at), (fd, p, n, at))
HB_CALL(hb_ssize, preadv, FD, (int fd, hb_src v, int n, int64_t at), (fd, v, n, at))
HB_CALL(hb_ssize, pwritev, FD, (int fd, hb_src v, int n, int64_t at), (fd, v, n, at))
HB_CALL(hb_ssize, preadv64, FD, (int fd, hb_src v, int n, int64_t at), (fd, v, n, at))
HB_CALL(hb_ssize, pwritev64, FD, (int fd, hb_src v, int n, int64_t at), (fd, v, n, at))
HB_CALL_SOCKET(hb_ssize, recv, (int fd, hb_dst p, size_t n, int flags), (fd, p, n, flags))
HB_CALL_SOCKET(hb_ssize, recvfrom, (int fd, hb_dst p, size_t n, int flags, hb_dst a, hb_dst l), (fd, p, n, flags, a, l))
HB_CALL_SOCKET(hb_ssize, recvmsg, (int fd, hb_dst m, int flags), (fd, m, flags))
HB_CALL_SOCKET(int, recvmmsg, (int fd, hb_dst m, unsigned n, int flags, hb_dst ts), (fd, m, n, flags, ts))
HB_CALL_WRITE(hb_ssize, send, (int fd, hb_src p, size_t n, int flags), (fd, p, n, flags))
HB_CALL_WRITE(hb_ssize, sendto, (int fd, hb_src p, size_t n, int flags, hb_src a, unsigned l), (fd, p, n, flags, a, l))
HB_CALL_WRITE(hb_ssize, sendmsg, (int fd, hb_src m, int flags), (fd, m, flags))
HB_CALL_WRITE(int, sendmmsg, (int fd, hb_dst m, unsigned n, int flags), (fd, m, n, flags))
HB_CALL_SOCKET(int, accept, (int fd, hb_dst a, hb_dst l), (fd, a, l))
HB_CALL_SOCKET(int, accept4, (int fd, hb_dst a, hb_dst l, int flags), (fd, a, l, flags))
HB_CALL_SOCKET(int, connect, (int fd, hb_src a, unsigned l), (fd, a, l))
HB_CALL(int, fsync, FD, (int fd), (fd))
HB_CALL(int, fdatasync, FD, (int fd), (fd))
HB_CALL(int, flock, FD, (int fd, int op), (fd, op))
HB_CALL(hb_ssize, sendfile, FD, (int fd, int in, hb_dst at, size_t n), (fd, in, at, n))
HB_CALL(hb_ssize, sendfile64, FD, (int fd, int in, hb_dst at, size_t n), (fd, in, at, n))
HB_CALL(hb_ssize, splice, FD, (int fd, hb_dst at, int out, hb_dst oat, size_t n, unsigned flags), (fd, at, out, oat, n, flags))
HB_CALL(hb_ssize, copy_file_range, FD, (int fd, hb_dst at, int out, hb_dst oat, size_t n, unsigned flags), (fd, at, out, oat, n, flags))
HB_CALL(int, msync, p, (hb_dst p, size_t n, int flags), (p, n, flags))
HB_CALL(hb_ssize, preadv2, FD, (int fd, hb_src v, int n, int64_t at, int flags), (fd, v, n, at, flags))
HB_CALL(hb_ssize, pwritev2, FD, (int fd, hb_src v, int n, int64_t at, int flags), (fd, v, n, at, flags))
HB_CALL(hb_ssize, preadv64v2, FD, (int fd, hb_src v, int n, int64_t at, int flags), (fd, v, n, at, flags))
HB_CALL(hb_ssize, pwritev64v2, FD, (int fd, hb_src v, int n, int64_t at, int flags), (fd, v, n, at, flags))
HB_CALL(hb_ssize, vmsplice, FD, (int fd, hb_src v, size_t n, unsigned flags), (fd, v, n, flags))
HB_CALL(hb_ssize, tee, FD, (int fd, int out, size_t n, unsigned flags), (fd, out, n, flags))
HB_CALL(int, tcdrain, FD, (int fd), (fd))
HB_CALL(int, syncfs, FD, (int fd), (fd))
HB_CALL(int, lockf, FD, (int fd, int op, int64_t n), (fd, op, n))
HB_CALL(int, lockf64, FD, (int fd, int op, int64_t n), (fd, op, n))
HB_CALL(int, fallocate, FD, (int fd, int mode, int64_t at, int64_t n), (fd, mode, at, n))
HB_CALL(int, fallocate64, FD, (int fd, int mode, int64_t at, int64_t n), (fd, mode, at, n))
HB_CALL(hb_ssize, mq_receive, FD, (int fd, hb_dst p, size_t n, hb_dst prio), (fd, p, n, prio))
HB_CALL(hb_ssize, mq_timedreceive, FD, (int fd, hb_dst p, size_t n, hb_dst prio, hb_src ts), (fd, p, n, prio, ts))
HB_CALL(int, mq_send, FD, (int fd, hb_src p, size_t n, unsigned prio), (fd, p, n, prio))
HB_CALL(int, mq_timedsend, FD, (int fd, hb_src p, size_t n, unsigned prio, hb_src ts), (fd, p, n, prio, ts))

/* Opening a FIFO waits for its other end; any file system may be far away. The mode is read whether it was given or not. */
HB_CALL(int, open, 0, (hb_src path, int flags, long mode), (path, flags, mode))
HB_CALL(int, open64, 0, (hb_src path, int flags, long mode), (path, flags, mode))
HB_CALL(int, openat, 0, (int at, hb_src path, int flags, long mode), (at, path, flags, mode))
HB_CALL(int, openat64, 0, (int at, hb_src path, int flags, long mode), (at, path, flags, mode))
HB_CALL(int, creat, 0, (hb_src path, unsigned mode), (path, mode))
HB_CALL(int, creat64, 0, (hb_src path, unsigned mode), (path, mode))
HB_CALL(int, __open_2, 0, (hb_src path, int flags), (path, flags))
HB_CALL(int, __open64_2, 0, (hb_src path, int flags), (path, flags))
HB_CALL(int, __openat_2, 0, (int at, hb_src path, int flags), (at, path, flags))
HB_CALL(int, __openat64_2, 0, (int at, hb_src path, int flags), (at, path, flags))
HB_CALL(int, sync_file_range, FD, (int fd, int64_t at, int64_t n, unsigned flags), (fd, at, n, flags))

HB_CALL_POLL(poll, 0, p, n, (hb_dst p, unsigned long n, int ms), (p, n, ms),
             (p, n, hb_rest_ms(made, ms)))
HB_CALL_POLL(ppoll, 0, p, n, (hb_dst p, unsigned long n, hb_src ts, hb_src mask), (p, n, ts, mask),
             (p, n, hb_rest_ts(made, ts, &left), mask))
HB_CALL_AGAIN(int, select, 0, r == -1, (int n, hb_dst r_, hb_dst w_, hb_dst e_, hb_dst tv), (n, r_, w_, e_, tv),
              real(n, r_, w_, e_, tv))
HB_CALL_AGAIN(int, pselect, 0, r == -1, (int n, hb_dst r_, hb_dst w_, hb_dst e_, hb_src ts, hb_src mask), (n, r_, w_, e_, ts, mask),
              real(n, r_, w_, e_, hb_rest_ts(made, ts, &left), mask))
HB_CALL_POLL(epoll_wait, FD, ev, n, (int fd, hb_dst ev, int n, int ms), (fd, ev, n, ms),
             (fd, ev, n, hb_rest_ms(made, ms)))
HB_CALL_POLL(epoll_pwait, FD, ev, n, (int fd, hb_dst ev, int n, int ms, hb_src mask), (fd, ev, n, ms, mask),
             (fd, ev, n, hb_rest_ms(made, ms), mask))
HB_CALL_POLL(epoll_pwait2, FD, ev, n, (int fd, hb_dst ev, int n, hb_src ts, hb_src mask), (fd, ev, n, ts, mask),
             (fd, ev, n, hb_rest_ts(made, ts, &left), mask))

HB_CALL_AGAIN(int, nanosleep, 0, r == -1, (hb_src ts, hb_dst rest), (ts, rest),
              real(hb_rest_ts(made, ts, &left), rest))
HB_CALL_AGAIN(int, usleep, 0, r == -1, (unsigned us), (us),
              real(hb_rest_us(made, us)))
HB_CALL_AGAIN(unsigned, sleep, 0, 1 /* it gives back whole seconds */, (unsigned s), (s),
              hb_rest_sleep(made, s))
HB_CALL(int, wait, 0, (hb_dst status), (status))
HB_CALL(int, waitpid, (uint32_t)pid, (int pid, hb_dst status, int flags), (pid, status, flags))
HB_CALL(int, wait3, 0, (hb_dst status, int flags, hb_dst ru), (status, flags, ru))
HB_CALL(int, wait4, (uint32_t)pid, (int pid, hb_dst status, int flags, hb_dst ru), (pid, status, flags, ru))
HB_CALL(int, waitid, (uint32_t)pid, (int type, unsigned pid, hb_dst info, int flags), (type, pid, info, flags))
HB_CALL_AGAIN(int, thrd_sleep, 0, r == -1, (hb_src ts, hb_dst rest), (ts, rest),
              real(hb_rest_ts(made, ts, &left), rest))
HB_CALL(int, system, 0, (hb_src command), (command))
HB_CALL(int, pclose, 0, (hb_dst f), (f))
HB_CALL(hb_ssize, getrandom, 0, (hb_dst p, size_t n, unsigned flags), (p, n, flags))
HB_CALL_AGAIN(int, aio_suspend, 0, r == -1, (hb_src list, int n, hb_src ts), (list, n, ts),
              real(list, n, hb_rest_ts(made, ts, &left)))
HB_CALL_AGAIN(int, pause, 0, r == -1, (void), (),
              real())
HB_CALL_AGAIN(int, sigsuspend, 0, r == -1, (hb_src mask), (mask),
              real(mask))
HB_CALL_AGAIN(int, sigwaitinfo, 0, r == -1, (hb_src set, hb_dst info), (set, info),
              real(set, info))
HB_CALL_AGAIN(int, sigtimedwait, 0, r == -1, (hb_src set, hb_dst info, hb_src ts), (set, info, ts),
              real(set, info, hb_rest_ts(made, ts, &left)))

HB_CALL_SOCKET(hb_ssize, __read_chk, (int fd, hb_dst p, size_t n, size_t room), (fd, p, n, room))
HB_CALL(hb_ssize, __pread_chk, FD, (int fd, hb_dst p, size_t n, int64_t at, size_t room), (fd, p, n, at, room))
HB_CALL(hb_ssize, __pread64_chk, FD, (int fd, hb_dst p, size_t n, int64_t at, size_t room), (fd, p, n, at, room))
HB_CALL_SOCKET(hb_ssize, __recv_chk, (int fd, hb_dst p, size_t n, size_t room, int flags), (fd, p, n, room, flags))
HB_CALL_SOCKET(hb_ssize, __recvfrom_chk, (int fd, hb_dst p, size_t n, size_t room, int flags, hb_dst a, hb_dst l), (fd, p, n, room, flags, a, l))
HB_CALL_POLL(__poll_chk, 0, p, n, (hb_dst p, unsigned long n, int ms, size_t room), (p, n, ms, room),
             (p, n, hb_rest_ms(made, ms), room))
HB_CALL_POLL(__ppoll_chk, 0, p, n, (hb_dst p, unsigned long n, hb_src ts, hb_src mask, size_t room), (p, n, ts, mask, room),
             (p, n, hb_rest_ts(made, ts, &left), mask, room))

HB_CALL_AGAIN(int, semop, 0, r == -1, (int id, hb_dst ops, size_t n), (id, ops, n),
              real(id, ops, n))
HB_CALL_AGAIN(int, semtimedop, 0, r == -1, (int id, hb_dst ops, size_t n, hb_src ts), (id, ops, n, ts),
              real(id, ops, n, hb_rest_ts(made, ts, &left)))
HB_CALL_AGAIN(hb_ssize, msgrcv, 0, r == -1, (int id, hb_dst p, size_t n, long type, int flags), (id, p, n, type, flags),
              real(id, p, n, type, flags))
HB_CALL_AGAIN(int, msgsnd, 0, r == -1, (int id, hb_src p, size_t n, int flags), (id, p, n, flags),
              real(id, p, n, flags))

/* Of these only what is needed later to tell ends apart is kept: nothing of it sleeps. */
HB_EXPORT int hb_call_epoll_ctl(int epoll, int op, int fd, const struct hb_epoll_event *ev) __asm__("epoll_ctl");
HB_EXPORT int hb_call_epoll_ctl(int epoll, int op, int fd, const struct hb_epoll_event *ev) {
  typedef int (*fn)(int, int, int, const struct hb_epoll_event *);
  fn real = HB_REAL(fn, epoll_ctl);
  if (HB_UNLIKELY(!real)) return (int)hb_fail(HB_ENOSYS);
  int r = real(epoll, op, fd, ev);
  if (r == 0 && op != 2 /* EPOLL_CTL_DEL */ && ev && hb_load_relaxed(&hb.on)) hb_watch((uint32_t)epoll, (uint32_t)fd, ev->data);
  return r;
}

HB_EXPORT int hb_call_socketpair(int domain, int type, int protocol, int *fds) __asm__("socketpair");
HB_EXPORT int hb_call_socketpair(int domain, int type, int protocol, int *fds) {
  typedef int (*fn)(int, int, int, int *);
  fn real = HB_REAL(fn, socketpair);
  struct hb_stat a, b;
  if (HB_UNLIKELY(!real)) return (int)hb_fail(HB_ENOSYS);
  int r = real(domain, type, protocol, fds);
  if (r || !hb_load_relaxed(&hb.on) || hb_is_err(hb_sys2(HB_SYS_fstat, fds[0], &a)) || hb_is_err(hb_sys2(HB_SYS_fstat, fds[1], &b))) return r;
  hb_pair_remember(a.ino, b.ino);
  return r;
}

/* The number may mean another one from now on. */
HB_EXPORT int hb_call_close(int fd) __asm__("close");
HB_EXPORT HB_NOINLINE int hb_call_close(int fd) {
  HB_UNWIND_SCOPE;
  typedef int (*fn)(int);
  fn real = HB_REAL(fn, close);
  struct hb_call c;
  if (HB_UNLIKELY(!real)) return (int)hb_fail(HB_ENOSYS);
  hb_call_enter(&c, HB_HOOK_close, FD, HB_PARKS_close, HB_FRAME);
  int r = real(fd);
  if (HB_LIKELY(c.slot != NULL)) hb_identity_forget(FD);
  hb_call_leave(&c, HB_HOOK_close, FD, r, HB_ERRNO, HB_FRAME);
  return r;
}

/* Of fcntl only the waiting for a record lock sleeps: 7 is F_SETLKW, 38 F_OFD_SETLKW (asm-generic/fcntl.h). */
#define HB_FCNTL(symbol)                                                                 \
  HB_EXPORT int hb_call_##symbol(int fd, int op, long arg) __asm__(#symbol);             \
  static HB_NOINLINE int hb_setlkw_##symbol(int fd, int op, long arg) {                  \
    HB_UNWIND_SCOPE;                                                                     \
    struct hb_call c;                                                                    \
    hb_call_enter(&c, HB_HOOK_##symbol, FD, 1, HB_FRAME);                                \
    int r = ((int (*)(int, int, long))hb_real.symbol)(fd, op, arg);                      \
    hb_call_leave(&c, HB_HOOK_##symbol, FD, r, HB_ERRNO, HB_FRAME);                      \
    return r;                                                                            \
  }                                                                                      \
  HB_EXPORT int hb_call_##symbol(int fd, int op, long arg) {                             \
    typedef int (*fn)(int, int, long);                                                   \
    fn real = HB_REAL(fn, symbol);                                                       \
    if (HB_UNLIKELY(!real)) return (int)hb_fail(HB_ENOSYS);                              \
    if (HB_LIKELY(op != 7 && op != 38)) return real(fd, op, arg);                        \
    return hb_setlkw_##symbol(fd, op, arg);                                              \
  }
HB_FCNTL(fcntl)
HB_FCNTL(fcntl64)

HB_EXPORT void hb_call_sync(void) __asm__("sync");
HB_EXPORT HB_NOINLINE void hb_call_sync(void) {
  typedef void (*fn)(void);
  fn real = HB_REAL(fn, sync);
  struct hb_call c;
  if (!real) return;
  hb_call_enter(&c, HB_HOOK_sync, 0, 1, HB_FRAME);
  real();
  hb_call_leave(&c, HB_HOOK_sync, 0, 0, HB_VALUE, HB_FRAME);
}

/* These return the error itself and leave errno alone. */
#define HB_CALL_ERROR(symbol, object, params, args, again)                                 \
  HB_EXPORT HB_NOINLINE int symbol params {                                                \
    HB_UNWIND_SCOPE;                                                                       \
    typedef int(*fn) params;                                                               \
    fn real = HB_REAL(fn, symbol);                                                         \
    struct hb_call c;                                                                      \
    if (HB_UNLIKELY(!real)) return HB_ENOSYS;                                              \
    hb_call_enter(&c, HB_HOOK_##symbol, object, HB_PARKS_##symbol, HB_FRAME);              \
    int r = real args;                                                                     \
    while (HB_UNLIKELY(r == HB_EINTR) && c.slot && hb_ended(HB_HOOK_##symbol, c.began, HB_FRAME)) {                    \
      struct hb_timespec left;                                                             \
      uint64_t made = c.stamp;                                                             \
      (void)left, (void)made;                                                              \
      r = real again;                                                                      \
    }                                                                                      \
    hb_call_leave(&c, HB_HOOK_##symbol, object, r, HB_ERROR, HB_FRAME);                      \
    return r;                                                                              \
  }
HB_CALL_ERROR(clock_nanosleep, 0, (int clock, int flags, hb_src ts, hb_dst rest), (clock, flags, ts, rest),
              (clock, flags, flags & 1 /* TIMER_ABSTIME */ ? ts : hb_rest_ts(made, ts, &left), rest))
HB_CALL_ERROR(sigwait, 0, (hb_src set, hb_dst sig), (set, sig), (set, sig))
HB_CALL_ERROR(posix_fallocate, FD, (int fd, int64_t at, int64_t n), (fd, at, n), (fd, at, n))
HB_CALL_ERROR(posix_fallocate64, FD, (int fd, int64_t at, int64_t n), (fd, at, n), (fd, at, n))
#undef FD

/* Its errors are of a kind of their own. */
HB_EXPORT HB_NOINLINE int getaddrinfo(hb_src node, hb_src service, hb_src hints, hb_dst out) {
  HB_UNWIND_SCOPE;
  typedef int (*fn)(hb_src, hb_src, hb_src, hb_dst);
  fn real = HB_REAL(fn, getaddrinfo);
  struct hb_call c;
  if (HB_UNLIKELY(!real)) return -11; /* EAI_SYSTEM */
  hb_call_enter(&c, HB_HOOK_getaddrinfo, 0, 1, HB_FRAME);
  int r = real(node, service, hints, out);
  hb_call_leave(&c, HB_HOOK_getaddrinfo, 0, r, HB_VALUE, HB_FRAME);
  return r;
}

/* libaio's, which returns -errno and is not libc's: where the library came later than we looked, the system call. */
HB_EXPORT HB_NOINLINE int io_getevents(unsigned long ctx, long min, long n, hb_dst ev, hb_dst ts) {
  typedef int (*fn)(unsigned long, long, long, hb_dst, hb_dst);
  fn real = HB_REAL(fn, io_getevents);
  struct hb_call c;
  uint32_t again = 0;
  hb_call_enter(&c, HB_HOOK_io_getevents, 0, 1, HB_FRAME);
  int r;
  do {
    struct hb_timespec left;
    const void *rest = again++ ? hb_rest_ts(c.stamp, ts, &left) : ts;
    r = real ? real(ctx, min, n, ev, (hb_dst)(uintptr_t)rest)
             : (int)hb_raw6(HB_SYS_io_getevents, (long)ctx, min, n, (long)ev, (long)rest, 0);
  } while (HB_UNLIKELY(r == -HB_EINTR) && c.slot && hb_ended(HB_HOOK_io_getevents, c.began, HB_FRAME));
  hb_call_leave(&c, HB_HOOK_io_getevents, 0, r < 0 ? -r : 0, HB_ERROR, HB_FRAME);
  return r;
}

#endif
