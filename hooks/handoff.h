/* handoff.h: who wrote what another thread of the process waited for, through a pipe, an eventfd, a pair of sockets or a
 * connection of the process to itself.
 *
 * Every write leaves a note by its descriptor {stamp, thread}: a few stores, no clock of its own. A read or a poll that was
 * long enough to be recorded looks for notes of its time, and asks the kernel whether the descriptor written to is the
 * other end of its own: nothing is asked in calls that did not wait.
 *   pipe      both ends have one inode
 *   eventfd   the same descriptor
 *   sockets   each one's name is the other's peer; ends of socketpair(2), which have none, are remembered by inode
 * What a descriptor was is remembered, to rule out others; an edge is made only from what the kernel said within the last
 * HB_TRUST_NS, unless the descriptor has been closed since (dup2(2) onto it within that time is not seen).
 * A poll says which descriptor was ready; an epoll instance gives back what it was told by epoll_ctl(2), which is remembered.
 * Most connections lead to other processes: a descriptor for which nobody was found is asked about half as often each time, down
 * to one recorded wait in 64, until somebody is. Names are not asked for while somebody writes to the socket: the kernel
 * locks it for a write, and who asks for its name waits.
 * A note says which write came last; when there was another on the descriptor since the wait began, the edge is not the only one.
 *
 * Not covered: other processes (notes are this one's), duplicated eventfds, named sockets of the Unix domain, select(2),
 * writes by sendfile, splice or io_uring, more than HB_NOTES descriptors written to at once (the note is overwritten). */
#ifndef HB_HANDOFF_H
#define HB_HANDOFF_H

#include "agent/real.h"

#define HB_UNFOUND_MOST 6u
#define HB_HANDOFF_TRIES 8 /* notes that are asked about for one wait, at half a microsecond each */
#define HB_TRUST_NS 10000000u /* a program that waits 20,000 times a second would ask twice for each */
#define HB_BUSY_MOST_NS 1000000000u /* a write that has lasted longer was left by a jump, or its thread ended in it */

struct hb_from {
  uint32_t thread; /* uid; 0: nobody was found */
  uint32_t fd;     /* through which of the waiter's descriptors */
  uint64_t stamp;  /* when the write was begun */
  int only;        /* no other write to it came since the wait began */
};

#define HB_NOTE_BUSY 0x80000000u /* in a note's fd: the write is under way */

/* About to write. hook path */
HB_INLINE void hb_note_write(struct hb_tls *t, uint32_t fd, uint64_t stamp) {
  struct hb_note *n = &hb.wiped->notes[fd % HB_NOTES];
  uint32_t had = hb_load_relaxed(&n->fd) & ~HB_NOTE_BUSY;
  uint64_t before = hb_load_relaxed(&n->stamp);
  hb_store_relaxed(&n->stamp, (uint64_t)0);
  hb_store_release(&n->before, had == fd + 1 ? before : had ? UINT64_MAX : 0);
  if (HB_UNLIKELY(had != fd + 1))
    atomic_fetch_or_explicit(&hb.wiped->noted[fd % HB_NOTES / 64], 1ull << fd % 64, memory_order_relaxed);
  hb_store_relaxed(&n->fd, (fd + 1) | HB_NOTE_BUSY);
  hb_store_relaxed(&n->thread, t->uid);
  hb_store_release(&n->stamp, stamp);
}

/* Is the last write to fd noted as under way? hook path */
HB_INLINE int hb_note_busy(uint32_t fd) { return hb_load_relaxed(&hb.wiped->notes[fd % HB_NOTES].fd) == ((fd + 1) | HB_NOTE_BUSY); }

/* It has been written. hook path */
HB_INLINE void hb_note_done(uint32_t fd) {
  if (hb_note_busy(fd)) hb_store_relaxed(&hb.wiped->notes[fd % HB_NOTES].fd, fd + 1);
}

/* Is anybody writing to fd? hook path */
static int hb_note_writing(uint32_t fd, uint64_t now) {
  return hb_note_busy(fd) && hb_stamp_ns(hb_load_relaxed(&hb.wiped->notes[fd % HB_NOTES].stamp), now) < HB_BUSY_MOST_NS;
}

/* It wrote nothing. hook path */
HB_INLINE void hb_note_undo(struct hb_tls *t, uint32_t fd, uint64_t stamp) {
  struct hb_note *n = &hb.wiped->notes[fd % HB_NOTES];
  if (hb_load_relaxed(&n->stamp) == stamp && hb_load_relaxed(&n->thread) == t->uid) hb_store_relaxed(&n->stamp, (uint64_t)0);
}

enum { HB_S_IFMT = 0170000, HB_S_IFIFO = 0010000, HB_S_IFSOCK = 0140000 };

struct hb_what { /* what a descriptor is */
  uint64_t key;
  uint32_t type; /* HB_S_IFMT's bits */
};

/* Never 0 for anything that was asked: `what` is not 0 then. */
HB_INLINE uint64_t hb_identity_check(uint64_t key, uint64_t asked, uint64_t what) {
  return (key ^ (asked << 32 | asked >> 32)) * 0x9e3779b97f4a7c15ull + what;
}

/* What the kernel last said of fd; 0: it was not asked, or fd has been closed since. *asked: when. hook path */
static int hb_identity_known(uint32_t fd, struct hb_what *w, uint64_t *asked) {
  struct hb_identity *i = &hb.wiped->identities[fd % HB_NOTES];
  uint64_t check = hb_load_acquire(&i->check), what = hb_load_relaxed(&i->what);
  w->key = hb_load_relaxed(&i->key);
  w->type = (uint32_t)(what >> 32);
  *asked = hb_load_relaxed(&i->asked);
  return (uint32_t)what == fd + 1 && check == hb_identity_check(w->key, *asked, what);
}

/* Ask the kernel what fd is; 0: nothing. hook path */
static int hb_identity_ask(uint32_t fd, uint64_t now, struct hb_what *w) {
  struct hb_identity *i = &hb.wiped->identities[fd % HB_NOTES];
  struct hb_stat st;
  uint64_t check = hb_load_acquire(&i->check);
  if (!check && hb_cas_seq(&i->check, &check, (uint64_t)1)) check = 1; /* so that a close meanwhile shows */
  if (hb_is_err(hb_sys2(HB_SYS_fstat, fd, &st))) return 0;
  w->type = st.mode & HB_S_IFMT;
  w->key = w->type == HB_S_IFSOCK ? st.ino : st.ino + st.dev * 0x9e3779b97f4a7c15ull;
  uint64_t what = (uint64_t)w->type << 32 | (fd + 1);
  hb_store_relaxed(&i->key, w->key);
  hb_store_relaxed(&i->asked, now);
  hb_store_relaxed(&i->what, what);
  /* Not if it was closed meanwhile, or another thread asked: then nobody believes it. */
  hb_cas_seq(&i->check, &check, hb_identity_check(w->key, now, what));
  return 1;
}

/* hook path */
static int hb_identity_of(uint32_t fd, uint64_t now, struct hb_what *w) {
  uint64_t asked;
  if (hb_identity_known(fd, w, &asked) && hb_stamp_ns(asked, now) < HB_TRUST_NS) return 1;
  return hb_identity_ask(fd, now, w);
}

/* It has been closed. hook path */
HB_INLINE void hb_identity_forget(uint32_t fd) {
  struct hb_identity *i = &hb.wiped->identities[fd % HB_NOTES];
  if (hb_load_relaxed(&i->check)) hb_add_relaxed(&i->check, (uint64_t)1);
}

struct hb_name { /* a socket's address */
  uint32_t bytes;
  union {
    uint16_t family;
    uint8_t b[128];
  };
};

/* A socket's own address, or its peer's. hook path */
static int hb_name_of(int peer, uint32_t fd, struct hb_name *n) {
  n->bytes = sizeof n->b;
  long r = peer ? hb_sys3(HB_SYS_getpeername, fd, n->b, &n->bytes) : hb_sys3(HB_SYS_getsockname, fd, n->b, &n->bytes);
  return !hb_is_err(r) && n->bytes <= sizeof n->b;
}

static int hb_name_same(const struct hb_name *x, const struct hb_name *y) {
  if (x->bytes != y->bytes) return 0;
  for (uint32_t i = 0; i < x->bytes; i++)
    if (x->b[i] != y->b[i]) return 0;
  return 1;
}

/* Two sockets that are each other's peers, for as long as they live: the kernel numbers sockets upwards, so that a pair
 * cannot come to mean others. hook path */
static void hb_pair_remember(uint64_t x, uint64_t y) {
  struct hb_pair *p = &hb.wiped->pairs[hb_add_relaxed(&hb.wiped->pairs_next, 1u) % HB_PAIRS];
  hb_store_relaxed(&p->ino[0], (uint64_t)0); /* being written */
  hb_store_release(&p->ino[1], y);
  hb_store_release(&p->ino[0], x);
}

/* The remembered peer of a socket; 0: not remembered. hook path */
static uint64_t hb_pair_of(uint64_t ino) {
  for (int i = 0; i < HB_PAIRS; i++) {
    struct hb_pair *p = &hb.wiped->pairs[i];
    uint64_t x = hb_load_acquire(&p->ino[0]), y = hb_load_acquire(&p->ino[1]);
    if (x && (x == ino || y == ino) && hb_load_relaxed(&p->ino[0]) == x) return x == ino ? y : x;
  }
  return 0;
}

/* Are these sockets, with no remembered peers, each other's? hook path */
static int hb_peers(uint32_t fd, uint32_t other) {
  struct hb_name mine, its;
  if (!hb_name_of(0, fd, &mine) || (mine.family != 2 && mine.family != 10) /* AF_INET, AF_INET6 */ ||
      !hb_name_of(1, other, &its) || !hb_name_same(&mine, &its))
    return 0;
  return hb_name_of(1, fd, &mine) && hb_name_of(0, other, &its) && hb_name_same(&mine, &its);
}

/* Who wrote to the other end of fd since `from`, as far as it can be told. hook path; keeps errno */
static void hb_handoff_fd(struct hb_tls *t, uint32_t fd, uint64_t from, struct hb_from *out) {
  _Atomic uint16_t *unfound = &hb.wiped->unfound[fd % HB_NOTES];
  uint32_t passed = hb_load_relaxed(unfound);
  if (passed & 0xff) {
    hb_store_relaxed(unfound, (uint16_t)(passed - 1));
    return;
  }
  struct hb_what mine, its;
  uint64_t now = hb_stamp(), peer = 0; /* of a socket, if it is remembered */
  int tries = 0, asked = 0, found = 0, busy = 0;
  uint64_t noted = 0; /* of 64 notes, those that are left */
  for (uint32_t next = 0; tries < HB_HANDOFF_TRIES;) {
    if (!noted) {
      if (next == HB_NOTES / 64) break;
      noted = hb_load_relaxed(&hb.wiped->noted[next++]);
      continue;
    }
    struct hb_note *n = &hb.wiped->notes[next * 64 - 64 + (uint32_t)__builtin_ctzll(noted)];
    noted &= noted - 1;
    uint64_t stamp = hb_load_acquire(&n->stamp);
    if ((int64_t)(stamp - from) <= 0 || !stamp) continue;
    uint32_t other = (hb_load_relaxed(&n->fd) & ~HB_NOTE_BUSY) - 1, by = hb_load_relaxed(&n->thread);
    uint64_t before = hb_load_relaxed(&n->before);
    hb_compiler_barrier();
    if (by == t->uid || hb_load_acquire(&n->stamp) != stamp) continue;
    if (!asked++) {
      if (!hb_identity_of(fd, now, &mine)) return;
      if (mine.type == HB_S_IFSOCK) peer = hb_pair_of(mine.key);
    }
    uint64_t wanted = mine.type == HB_S_IFSOCK ? peer : mine.key, asked_at;
    if (mine.type == 0 && other != fd) continue; /* an eventfd has no number of its own */
    /* What it was when it was asked about last rules it out, unless nobody was found the last time: then it may be another by now. */
    if (!passed && wanted && hb_identity_known(other, &its, &asked_at) && its.key != wanted) continue;
    tries++;
    if (!hb_identity_of(other, now, &its) || mine.type != its.type) continue;
    int is;
    if (mine.type == HB_S_IFIFO) is = its.key == mine.key;
    else if (mine.type != HB_S_IFSOCK) is = mine.type == 0;
    else if (peer) is = its.key == peer;
    else if (hb_note_writing(other, now) || hb_note_writing(fd, now)) { /* its name would be waited for: the kernel locks the socket for a write */
      busy = 1;
      continue;
    } else if ((is = fd != other && hb_peers(fd, other))) hb_pair_remember(mine.key, its.key);
    if (!is) continue;
    if (!found++ || stamp < out->stamp) {
      *out = (struct hb_from){by, fd, stamp, (int64_t)(before - from) <= 0};
    }
  }
  if (found > 1 || tries == HB_HANDOFF_TRIES) out->only = 0;
  uint32_t more = passed >> 8;
  if (!busy && more < HB_UNFOUND_MOST) more++;
  hb_store_relaxed(unfound, found ? (uint16_t)0 : (uint16_t)(more << 8 | ((1u << more) - 1)));
}

/* ---- what was ready ---- */

struct hb_pollfd {
  int fd;
  int16_t events, revents;
};
struct hb_epoll_event {
  uint32_t events;
  uint64_t data;
} HB_EPOLL_PACKED;

HB_INLINE struct hb_watch *hb_watch_at(uint32_t epoll, uint64_t data) {
  uint64_t h = (data ^ (uint64_t)epoll << 48) * 0x9e3779b97f4a7c15ull;
  return &hb.wiped->watches[h >> 32 & (HB_WATCHES - 1)];
}

/* What an epoll instance was told to give back for a descriptor. hook path */
static void hb_watch(uint32_t epoll, uint32_t fd, uint64_t data) {
  struct hb_watch *w = hb_watch_at(epoll, data);
  hb_store_relaxed(&w->epoll, epoll);
  hb_store_relaxed(&w->fd, fd + 1);
  hb_store_release(&w->data, data);
}

enum { HB_READY_EACH = 4 /* descriptors of one poll that are looked at */ };

/* Who ended a wait that is to be recorded. ready, n: pollfds or epoll's events; r: what the call returned. hook path */
static void hb_handoff(struct hb_tls *t, uint32_t hook, uint64_t object, int64_t r, uint64_t from, const void *ready, uint64_t n,
                       struct hb_from *out) {
  out->thread = 0;
  if (r <= 0) return;
  switch (hook) {
    case HB_HOOK_read: case HB_HOOK_readv: case HB_HOOK___read_chk: case HB_HOOK_recv: case HB_HOOK_recvfrom:
    case HB_HOOK_recvmsg: case HB_HOOK___recv_chk: case HB_HOOK___recvfrom_chk:
      hb_handoff_fd(t, (uint32_t)object, from, out);
      return;
    case HB_HOOK_poll: case HB_HOOK_ppoll: case HB_HOOK___poll_chk: case HB_HOOK___ppoll_chk: {
      const struct hb_pollfd *p = ready;
      int seen = 0;
      for (uint64_t i = 0; p && i < n && seen < HB_READY_EACH && !out->thread; i++)
        if (p[i].revents & 1 /* POLLIN */ && ++seen) hb_handoff_fd(t, (uint32_t)p[i].fd, from, out);
      return;
    }
    case HB_HOOK_epoll_wait: case HB_HOOK_epoll_pwait: case HB_HOOK_epoll_pwait2: {
      const struct hb_epoll_event *p = ready;
      for (int64_t i = 0; p && i < r && i < HB_READY_EACH && !out->thread; i++) {
        const struct hb_watch *w = hb_watch_at((uint32_t)object, p[i].data);
        if (hb_load_acquire(&w->data) == p[i].data && hb_load_relaxed(&w->epoll) == (uint32_t)object && hb_load_relaxed(&w->fd))
          hb_handoff_fd(t, hb_load_relaxed(&w->fd) - 1, from, out);
      }
      return;
    }
    default: return;
  }
}

#endif
