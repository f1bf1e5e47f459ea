/* session.h: from the environment variable to the session's memory: the socket, who answers there, and what that sends.
 *
 * HBTRACE_SESSION=NAME.ASK.GIVE.UID.USERNS.DEV.INO: the socket's abstract name; the secret that we show the recorder and the one
 * that it shows us, in hexadecimal; the recorder's user, and the user namespace in which that number means it; the directory that the agent
 * was loaded from.
 *
 * The variable outlives the session in daemons, and the name is then anybody's. So nothing is taken from whoever owns it
 * before three things are known: the kernel says that it runs as the recorder's user; it knows the second secret; and what
 * it hands over cannot be made smaller than it says, by its seals. The segment is still no place to believe: other
 * processes of the session write there at any time. Its header is copied once, and the copy checked. */
#ifndef HB_SESSION_H
#define HB_SESSION_H

#include "agent/state.h"

#define HB_AF_UNIX 1
#define HB_SOL_SOCKET 1
#define HB_SO_PEERCRED 17
#define HB_SO_RCVTIMEO 20
#define HB_SOCK_SEQPACKET_CLOEXEC (5 | 02000000)
#define HB_MSG_CMSG_CLOEXEC 0x40000000
#define HB_MSG_NOSIGNAL 0x4000
#define HB_SIGURG 23
#define HB_SIGWINCH 28
#define HB_MOVES 8
#define HB_F_GET_SEALS 1034
#define HB_SEALS 7u /* F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW */
/* A collector that answers no sooner is none. One that is stopped answers nobody: whether it is, is looked at after the first
 * wait, and after each longer one that follows. */
#define HB_HELLO_TIMEOUT_MS 5000
#define HB_HELLO_FIRST_MS 20
#define HB_HELLO_NEXT_MS 200

struct hb_session {
  const char *name;
  size_t name_bytes;
  uint8_t ask[HB_SECRET_BYTES], give[HB_SECRET_BYTES];
  uint64_t uid, userns, dev, ino;
};

/* Each of these takes its part off the text at *p, with the '.' or the end behind it; 0 when it is not one. init only */
static int hb_part_secret(const char **p, uint8_t *out) {
  for (uint32_t i = 0; i < 2 * HB_SECRET_BYTES; i++, (*p)++) {
    char c = **p;
    int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return 0;
    out[i / 2] = (uint8_t)(out[i / 2] << 4 | digit);
  }
  return *(*p)++ == '.';
}

static int hb_part_number(const char **p, uint64_t *out, char end) {
  const char *from = *p;
  *out = 0;
  for (; **p >= '0' && **p <= '9' && *p - from < 19; (*p)++) *out = *out * 10 + (uint64_t)(**p - '0');
  return *p > from && *(*p)++ == end;
}

static int hb_session_parse(const char *value, struct hb_session *s) {
  const char *p = value;
  memset(s, 0, sizeof *s);
  s->name = value;
  while (*p && *p != '.') p++;
  s->name_bytes = (size_t)(p - value);
  return s->name_bytes > 0 && s->name_bytes <= 100 && *p++ == '.' && hb_part_secret(&p, s->ask) && hb_part_secret(&p, s->give) &&
         hb_part_number(&p, &s->uid, '.') && hb_part_number(&p, &s->userns, '.') && hb_part_number(&p, &s->dev, '.') && hb_part_number(&p, &s->ino, 0);
}

/* The session that this process belongs to, for as long as it lives: its environment may be changed. No name: none. */
static struct hb_session hb_session_kept;

static void hb_session_keep(const struct hb_session *s) {
  static char name[101];
  memcpy(name, s->name, s->name_bytes);
  hb_session_kept = *s;
  hb_session_kept.name = name;
}

/* In a time that does not tell how much of it was right. */
static int hb_secret_is(const uint8_t *a, const uint8_t *b) {
  uint32_t differs = 0;
  for (uint32_t i = 0; i < HB_SECRET_BYTES; i++) differs |= (uint32_t)(a[i] ^ b[i]);
  return differs == 0;
}

/* Is this the user namespace that the recorder is in? Yes, where nobody says. init only */
static int hb_userns_is(uint64_t inode) {
  static const char kind[] = "user:[";
  char text[64];
  memset(text, 0, sizeof text);
  if (hb_is_err(hb_readlink("/proc/self/ns/user", text, sizeof text - 1))) return 1;
  const char *p = text;
  uint64_t n;
  for (size_t i = 0; i < sizeof kind - 1; i++)
    if (*p++ != kind[i]) return 1;
  return !hb_part_number(&p, &n, ']') || n == inode;
}

/* Does the other side run as the recorder's user? In a user namespace of our own that has another number, or none. *pid:
 * its process, 0 in another pid namespace. init only */
static int hb_peer_is(long s, const struct hb_session *session, uint32_t *pid) {
  struct {
    int32_t pid;
    uint32_t uid, gid;
  } cred = {0, 0, 0};
  uint32_t n = sizeof cred;
  if (hb_is_err(hb_sys6(HB_SYS_getsockopt, s, HB_SOL_SOCKET, HB_SO_PEERCRED, (long)&cred, (long)&n, 0)) || n != sizeof cred) return 0;
  *pid = cred.pid > 0 ? (uint32_t)cred.pid : 0;
  return cred.uid == session->uid || !hb_userns_is(session->userns);
}

/* Is that process stopped? Not, where it cannot be told. init only */
static int hb_stopped(uint32_t pid) {
  static const char file[] = "/stat";
  char path[] = "/proc/0123456789/stat", digits[10], text[64];
  uint32_t n = 0, at = 6;
  for (; pid; pid /= 10) digits[n++] = (char)('0' + pid % 10);
  if (!n) return 0;
  while (n) path[at++] = digits[--n];
  memcpy(path + at, file, sizeof file);
  long fd = hb_open(path, 02000000 /* O_CLOEXEC */);
  if (hb_is_err(fd)) return 0;
  long got = hb_sys3(HB_SYS_read, fd, text, sizeof text);
  hb_sys1(HB_SYS_close, fd);
  while (got > 2 && text[got - 1] != ')') got--; /* the command's name, 15 bytes, ends with the last one */
  return got > 2 && got + 1 < (long)sizeof text && (text[got + 1] == 'T' || text[got + 1] == 't');
}

struct hb_iovec {
  void *base;
  size_t len;
};
struct hb_msghdr {
  void *name;
  uint32_t namelen, pad;
  struct hb_iovec *iov;
  size_t iovlen;
  void *control;
  size_t controllen;
  int flags;
};

/* Take the hello, with fd[0] the memfd and fd[1] that of the unwind tables; what did not come stays -1. Not 0: there is none that makes
 * sense, or the system call's error. init only */
static long hb_receive(long s, struct hb_hello *hello, int fd[2], int flags) {
  union {
    char bytes[64];
    struct {
      size_t len;
      int level, type;
      int fd[2];
    } c;
  } control;
  memset(&control, 0, sizeof control);
  struct hb_iovec iov = {hello, sizeof *hello};
  struct hb_msghdr m = {NULL, 0, 0, &iov, 1, &control, sizeof control, 0};
  long got = hb_sys3(HB_SYS_recvmsg, s, &m, HB_MSG_CMSG_CLOEXEC | flags);
  if (hb_is_err(got)) return got;
  /* Two descriptors are the most that there is room for: what is here is all that came with it. */
  if (m.controllen >= sizeof control.c.len + 12 && control.c.level == HB_SOL_SOCKET && control.c.type == 1 /* SCM_RIGHTS */) {
    fd[0] = control.c.fd[0];
    if (control.c.len >= sizeof control.c.len + 16) fd[1] = control.c.fd[1];
  }
  return got == sizeof *hello && (fd[0] >= 0 || !hello->segment_bytes) && hello->magic == HB_MAGIC ? 0 : -1;
}

/* Connect, and show each other that we are of the session. exec_fd: as in struct hb_ask. fd: as in hb_ask_session. init
 * only, and hook path before an exec */
static int hb_ask_on(long s, const struct hb_session *session, uint32_t exec_fd, struct hb_hello *hello, int fd[2]) {
  struct {
    uint16_t family;
    char path[108];
  } addr;
  memset(&addr, 0, sizeof addr);
  addr.family = HB_AF_UNIX;
  for (size_t i = 0; i < session->name_bytes; i++) addr.path[1 + i] = session->name[i];
  uint32_t pid = 0;
  if (hb_is_err(hb_sys3(HB_SYS_connect, s, &addr, 3 + session->name_bytes)) || !hb_peer_is(s, session, &pid)) return 0;
  struct hb_ask ask = {.magic = HB_MAGIC, .exec_fd = exec_fd};
  memcpy(ask.secret, session->ask, sizeof ask.secret);
  if (hb_is_err(hb_sys6(HB_SYS_sendto, s, (long)&ask, sizeof ask, HB_MSG_NOSIGNAL, 0, 0))) return 0;
  long got = -HB_EAGAIN;
  for (int64_t waited = 0, next = HB_HELLO_FIRST_MS; (got == -HB_EAGAIN || got == -HB_EINTR) && waited < HB_HELLO_TIMEOUT_MS; next = HB_HELLO_NEXT_MS) {
    struct hb_timespec limit = {0, next * 1000}; /* a timeval */
    if (hb_is_err(hb_sys6(HB_SYS_setsockopt, s, HB_SOL_SOCKET, HB_SO_RCVTIMEO, (long)&limit, sizeof limit, 0))) return 0;
    got = hb_receive(s, hello, fd, 0);
    waited += next;
    if (got == -HB_EAGAIN && hb_stopped(pid)) return 0;
  }
  return got == 0 && hb_secret_is(hello->secret, session->give);
}

/* Ask the collector for the segment. Returns the socket, with fd[0] the memfd and fd[1] that of the unwind tables (-1:
 * none), or -1, with both -1. init only, and hook path before an exec */
static long hb_ask_session(const struct hb_session *session, uint32_t exec_fd, struct hb_hello *hello, int fd[2]) {
  fd[0] = fd[1] = -1;
  memset(hello, 0, sizeof *hello);
  long s = hb_sys3(HB_SYS_socket, HB_AF_UNIX, HB_SOCK_SEQPACKET_CLOEXEC, 0);
  if (hb_is_err(s)) return -1;
  if (hb_ask_on(s, session, exec_fd, hello, fd)) return s;
  for (int i = 0; i < 2; i++)
    if (fd[i] >= 0) hb_sys1(HB_SYS_close, fd[i]);
  fd[0] = fd[1] = -1;
  hb_sys1(HB_SYS_close, s);
  return -1;
}

/* Has the file so many bytes, and can it never have fewer? What is read behind a file's end is a SIGBUS. init only */
static int hb_sealed(int fd, uint64_t bytes) {
  uint64_t st[32]; /* struct stat, 144 bytes at most; st_size is its seventh word on both machines */
  long seals = hb_sys3(HB_SYS_fcntl, fd, HB_F_GET_SEALS, 0);
  if (hb_is_err(seals) || ((uint32_t)seals & HB_SEALS) != HB_SEALS) return 0;
  return !hb_is_err(hb_sys2(HB_SYS_fstat, fd, st)) && st[6] == bytes;
}

/* The segment's header, copied once: it is other processes' to write at any time. */
struct hb_geometry {
  uint64_t bytes, procs_off, threads_off, ring_ctl_off, ring_data_off, ring_bytes;
  uint32_t procs_cap, threads_cap, ring_count, alloc_slots, features, signal, cookie;
  uint64_t tick_ns, alloc_period, call_threshold_ns, lock_threshold_ns, release_debt_ns, cycles_mult, cpu_period_ns;
};

#define HB_LONG_NS (1ull << 50) /* 13 days: no threshold and no period is longer, and sums of a thousand do not overflow */

HB_INLINE uint64_t hb_at_most(uint64_t v, uint64_t most) { return v < most ? v : most; }

/* Does the header describe a segment of that length, and nothing that would harm a process? init only */
static int hb_geometry_read(const struct hb_header *shared, uint64_t bytes, struct hb_geometry *g) {
  struct hb_header c;
  const volatile uint64_t *from = (const volatile uint64_t *)(const void *)shared;
  uint64_t *to = (uint64_t *)(void *)&c;
  for (size_t i = 0; i < sizeof c / 8; i++) to[i] = from[i];
  *g = (struct hb_geometry){bytes, c.procs_off, c.threads_off, c.ring_ctl_off, c.ring_data_off, c.ring_bytes,
                            c.procs_cap, c.threads_cap, c.ring_count, c.alloc_slots, c.features, c.signal, c.cookie,
                            c.tick_ns, hb_at_most(c.alloc_period, 1ull << 40), hb_at_most(c.call_threshold_ns, HB_LONG_NS),
                            hb_at_most(c.lock_threshold_ns, HB_LONG_NS), hb_at_most(c.release_debt_ns, HB_LONG_NS),
                            c.cycles_mult, c.cpu_period_ns};
  uint64_t len = bytes, k = g->ring_count, cap = g->ring_bytes;
  int fits = c.magic == HB_MAGIC && c.version == HB_ABI_VERSION && c.header_bytes == sizeof c &&
             c.proc_bytes == sizeof(struct hb_proc) && c.thread_bytes == sizeof(struct hb_thread) &&
             c.subbuf_bytes == sizeof(struct hb_subbuf) && k >= 1 && k <= 256 && cap >= HB_MAX_RECORD * 2 && (cap & (cap - 1)) == 0 &&
             cap <= len / k && g->procs_off <= len && g->threads_off <= len && g->ring_ctl_off <= len && g->ring_data_off <= len &&
             !(g->procs_off & 63) && !(g->threads_off & 63) && !(g->ring_ctl_off & 63) && !(g->ring_data_off & 63) &&
             g->procs_off >= sizeof c && (uint64_t)g->procs_cap * sizeof(struct hb_proc) <= len - g->procs_off && g->procs_cap &&
             (uint64_t)g->threads_cap * sizeof(struct hb_thread) <= len - g->threads_off && g->threads_cap &&
             k * sizeof(struct hb_subbuf) <= len - g->ring_ctl_off && k * cap <= len - g->ring_data_off;
  /* The kernel's defaults for other signals end the process, and its C library keeps the first two real-time ones. */
  int harmless = (g->signal == HB_SIGURG || (g->signal > 33 && g->signal <= 64)) && g->tick_ns > 0 && g->tick_ns <= HB_LONG_NS &&
                 (!g->cpu_period_ns || (g->cpu_period_ns >= 1000 && g->cpu_period_ns <= UINT32_MAX)) &&
                 (!g->cycles_mult || (g->cycles_mult >> 24 && !(g->cycles_mult >> 40))); /* 1/256 to 256 ns a cycle */
  return fits && harmless;
}

#endif
