/* noeintr: twelve threads in every call that can sleep, for argv[1] seconds, while the program's own signals arrive and
 * its masks change. A call may be interrupted, return early or return something else only when the program's own
 * signal did that: each handler counts, per thread, so a call knows whether one ran meanwhile. */
#include "check.h"
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { THREADS = 12, MS = 1000000, TIMEOUT = 2 * MS, JIFFY = 10 * MS, BLOCK = 150000, LEAST = 2000 };

/* A result is OK (as it should be), EINTR, or anything else: wrong. */
enum { OK = 0 };

struct mine { /* what each thread has for itself */
  int id, ep, semid, msgid, file, lockfile, null, sock[2], full[2], listener, queue[2];
  uint32_t word;
  uint64_t random;
  pthread_t reader;
};
static __thread struct mine *me;
static __thread volatile sig_atomic_t handled; /* signals of the program's own that this thread has handled */

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static atomic_int stop, bad;
static atomic_long calls_made, interrupted;

static unsigned pick(unsigned n) {
  uint64_t x = me->random;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  me->random = x;
  return (unsigned)((x >> 20) % n);
}

static struct timespec span(void) {
  struct timespec s = {0, TIMEOUT};
  return s;
}
static int failed(long rc, int want) { return rc == -1 ? (errno == want ? OK : errno) : 1000; } /* must fail with want */
static int zero(long rc) { return rc == 0 ? OK : rc == -1 ? errno : 2000; }
static int exactly(long rc, long want) { return rc == want ? OK : rc == -1 ? errno : 3000; }
static int code(int rc, int want) { return rc == want ? OK : rc ? rc : 4000; } /* functions that return the error */

static int c_poll(void) { return zero(poll(NULL, 0, TIMEOUT / MS)); }
static int c_ppoll(void) {
  struct timespec s = span();
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  return zero(ppoll(NULL, 0, &s, &now));
}
static int c_select(void) {
  struct timeval tv = {0, TIMEOUT / 1000};
  return zero(select(0, NULL, NULL, NULL, &tv));
}
static int c_pselect(void) {
  struct timespec s = span();
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  return zero(pselect(0, NULL, NULL, NULL, &s, &now));
}
static int c_epoll_wait(void) {
  struct epoll_event e;
  return zero(epoll_wait(me->ep, &e, 1, TIMEOUT / MS));
}
static int c_epoll_pwait(void) {
  struct epoll_event e;
  sigset_t now;
  pthread_sigmask(SIG_BLOCK, NULL, &now);
  return zero(epoll_pwait(me->ep, &e, 1, TIMEOUT / MS, &now));
}
static int c_epoll_pwait2(void) {
  struct epoll_event e;
  struct timespec s = span();
  return zero(epoll_pwait2(me->ep, &e, 1, &s, NULL));
}
static int c_nanosleep(void) {
  struct timespec s = span();
  return zero(nanosleep(&s, NULL));
}
static int c_clock_nanosleep(void) {
  struct timespec s = after_ns(CLOCK_MONOTONIC, TIMEOUT);
  return code(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &s, NULL), 0);
}
static int c_usleep(void) { return zero(usleep(TIMEOUT / 1000)); }

static char byte;
static int c_recv(void) { return failed(recv(me->sock[0], &byte, 1, 0), EAGAIN); }
static int c_recvfrom(void) { return failed(recvfrom(me->sock[0], &byte, 1, 0, NULL, NULL), EAGAIN); }
static int c_read(void) { return failed(read(me->sock[0], &byte, 1), EAGAIN); }
static int c_readv(void) {
  struct iovec v = {&byte, 1};
  return failed(readv(me->sock[0], &v, 1), EAGAIN);
}
static int c_recvmsg(void) {
  struct iovec v = {&byte, 1};
  struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
  return failed(recvmsg(me->sock[0], &h, 0), EAGAIN);
}
static int c_recvmmsg(void) {
  struct iovec v = {&byte, 1};
  struct mmsghdr h = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};
  return failed(recvmmsg(me->sock[0], &h, 1, 0, NULL), EAGAIN);
}
static int c_accept(void) { return failed(accept(me->listener, NULL, NULL), EAGAIN); }
static int c_accept4(void) { return failed(accept4(me->listener, NULL, NULL, SOCK_CLOEXEC), EAGAIN); }
/* the other end is full, and sending has a time-out */
static int c_send(void) { return failed(send(me->full[0], &byte, 1, 0), EAGAIN); }
static int c_sendto(void) { return failed(sendto(me->full[0], &byte, 1, 0, NULL, 0), EAGAIN); }
static int c_write(void) { return failed(write(me->full[0], &byte, 1), EAGAIN); }
static int c_writev(void) {
  struct iovec v = {&byte, 1};
  return failed(writev(me->full[0], &v, 1), EAGAIN);
}
static int c_sendmsg(void) {
  struct iovec v = {&byte, 1};
  struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
  return failed(sendmsg(me->full[0], &h, 0), EAGAIN);
}
static int c_sendmmsg(void) {
  struct iovec v = {&byte, 1};
  struct mmsghdr h = {.msg_hdr = {.msg_iov = &v, .msg_iovlen = 1}};
  return failed(sendmmsg(me->full[0], &h, 1, 0), EAGAIN);
}

static int c_semtimedop(void) {
  struct timespec s = span();
  struct sembuf op = {0, -1, 0};
  return failed(semtimedop(me->semid, &op, 1, &s), EAGAIN);
}
static int c_semop(void) {
  struct sembuf up = {0, 1, 0}, down = {0, -1, 0};
  int r = zero(semop(me->semid, &up, 1));
  return r ? r : zero(semop(me->semid, &down, 1));
}
static int c_messages(void) {
  struct {
    long type;
    char text[32];
  } m = {1 + me->id, "hello"};
  int r = zero(msgsnd(me->msgid, &m, sizeof m.text, 0));
  return r ? r : exactly(msgrcv(me->msgid, &m, sizeof m.text, 1 + me->id, 0), sizeof m.text);
}
static int c_sigtimedwait(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 1);
  struct timespec s = span();
  return failed(sigtimedwait(&set, NULL, &s), EAGAIN);
}
static int c_sigwaits(void) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGRTMIN + 1);
  if (pthread_kill(pthread_self(), SIGRTMIN + 1))
    return 5000;
  int got = 0;
  if (pick(2))
    return exactly(sigwaitinfo(&set, NULL), SIGRTMIN + 1);
  int r = sigwait(&set, &got);
  return r ? r : got == SIGRTMIN + 1 ? OK : 5001;
}

static int c_futex(void) {
  struct timespec s = span();
  return failed(syscall(SYS_futex, &me->word, FUTEX_WAIT_PRIVATE, 0, &s, NULL, 0), ETIMEDOUT);
}
static int c_futex_bitset(void) {
  struct timespec s = after_ns(CLOCK_MONOTONIC, TIMEOUT);
  return failed(syscall(SYS_futex, &me->word, FUTEX_WAIT_BITSET_PRIVATE, 0, &s, NULL, FUTEX_BITSET_MATCH_ANY), ETIMEDOUT);
}
static int c_sem_timedwait(void) {
  sem_t s;
  sem_init(&s, 0, 0);
  struct timespec at = after_ns(CLOCK_REALTIME, TIMEOUT);
  return failed(sem_timedwait(&s, &at), ETIMEDOUT);
}
static int c_sem_clockwait(void) {
  sem_t s;
  sem_init(&s, 0, 0);
  struct timespec at = after_ns(CLOCK_MONOTONIC, TIMEOUT);
  return failed(sem_clockwait(&s, CLOCK_MONOTONIC, &at), ETIMEDOUT);
}
static int c_mutex_timedlock(void) {
  struct timespec at = after_ns(CLOCK_REALTIME, TIMEOUT);
  return code(pthread_mutex_timedlock(&held, &at), ETIMEDOUT);
}
static int c_mutex_clocklock(void) {
  struct timespec at = after_ns(CLOCK_MONOTONIC, TIMEOUT);
  return code(pthread_mutex_clocklock(&held, CLOCK_MONOTONIC, &at), ETIMEDOUT);
}
static int c_rdlock(void) {
  struct timespec at = after_ns(CLOCK_MONOTONIC, TIMEOUT);
  return code(pthread_rwlock_clockrdlock(&rw, CLOCK_MONOTONIC, &at), ETIMEDOUT);
}
static int c_wrlock(void) {
  struct timespec at = after_ns(CLOCK_REALTIME, TIMEOUT);
  return code(pthread_rwlock_timedwrlock(&rw, &at), ETIMEDOUT);
}
static int c_cond(void) {
  pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t c = PTHREAD_COND_INITIALIZER;
  struct timespec at = after_ns(CLOCK_MONOTONIC, TIMEOUT);
  int rc;
  pthread_mutex_lock(&m);
  while ((rc = pthread_cond_clockwait(&c, &m, CLOCK_MONOTONIC, &at)) == 0)
    ;
  pthread_mutex_unlock(&m);
  return code(rc, ETIMEDOUT);
}
static int c_join(void) {
  struct timespec at = after_ns(CLOCK_MONOTONIC, TIMEOUT);
  return code(pthread_clockjoin_np(me->reader, NULL, CLOCK_MONOTONIC, &at), ETIMEDOUT);
}

/* a child that the thread waits for; the exec is what takes its time */
static int c_wait(void) {
  pid_t pid = vfork();
  if (pid == 0) {
    execl("/bin/true", "true", (char *)NULL);
    _exit(97);
  }
  if (pid < 0)
    return errno;
  int st, how = (int)pick(3);
  siginfo_t info;
  long r;
  do
    r = how == 0 ? waitpid(pid, &st, 0) : how == 1 ? wait4(pid, &st, 0, NULL) : waitid(P_PID, (id_t)pid, &info, WEXITED);
  while (r == -1 && errno == EINTR && handled); /* ours: the caller of this function counts that */
  return how == 2 ? zero(r) : exactly(r, pid);
}

static int c_disk(void) {
  static const char text[64] = "text";
  char back[64];
  if (pwrite(me->file, text, sizeof text, 64 * (long)pick(100)) != sizeof text || pread(me->file, back, 64, 0) < 0)
    return 6000;
  loff_t in = 0, out = 65536;
  if (copy_file_range(me->file, &in, me->file, &out, 64, 0) < 0)
    return errno;
  off_t at = 0;
  if (sendfile(me->null, me->file, &at, 64) < 0)
    return errno;
  return zero(pick(2) ? fdatasync(me->file) : sync_file_range(me->file, 0, 4096, SYNC_FILE_RANGE_WRITE));
}
static int c_flock(void) {
  int r = zero(flock(me->lockfile, LOCK_EX)); /* all threads' own openings of one file */
  if (r)
    return r;
  burn_ns(50000);
  return zero(flock(me->lockfile, LOCK_UN));
}

/* A block larger than the pipe, from this thread to a helper that reads slowly: a write that returns less was
 * disturbed. The helper answers with the sum of what it read. */
static int c_pipe(void) {
  static const char block[BLOCK];
  return exactly(write(me->queue[1], block, BLOCK), BLOCK);
}
static void *pipe_reader(void *arg) {
  struct mine *m = arg;
  char buf[40000];
  long sum = 0;
  for (;;) {
    ssize_t n = read(m->queue[0], buf, sizeof buf);
    CHECK(n >= 0);
    if (n == 0)
      break;
    sum += n;
    struct timespec s = {0, 200000};
    nanosleep(&s, NULL);
  }
  CHECK(sum % BLOCK == 0 || atomic_load(&bad));
  return NULL;
}

static const struct {
  const char *name;
  int (*f)(void);
  int least; /* ns that it lasts at least; 0: it waits for nobody's clock */
} calls[] = {
    {"poll", c_poll, TIMEOUT},
    {"ppoll", c_ppoll, TIMEOUT},
    {"select", c_select, TIMEOUT},
    {"pselect", c_pselect, TIMEOUT},
    {"epoll_wait", c_epoll_wait, TIMEOUT},
    {"epoll_pwait", c_epoll_pwait, TIMEOUT},
    {"epoll_pwait2", c_epoll_pwait2, TIMEOUT},
    {"nanosleep", c_nanosleep, TIMEOUT},
    {"clock_nanosleep", c_clock_nanosleep, TIMEOUT},
    {"usleep", c_usleep, TIMEOUT},
    {"recv", c_recv, 0}, /* socket time-outs count in jiffies */
    {"recvfrom", c_recvfrom, 0},
    {"read", c_read, 0},
    {"readv", c_readv, 0},
    {"recvmsg", c_recvmsg, 0},
    {"recvmmsg", c_recvmmsg, 0},
    {"accept", c_accept, 0},
    {"accept4", c_accept4, 0},
    {"send", c_send, 0},
    {"sendto", c_sendto, 0},
    {"write", c_write, 0},
    {"writev", c_writev, 0},
    {"sendmsg", c_sendmsg, 0},
    {"sendmmsg", c_sendmmsg, 0},
    {"semtimedop", c_semtimedop, 0},
    {"semop", c_semop, 0},
    {"msgsnd and msgrcv", c_messages, 0},
    {"sigtimedwait", c_sigtimedwait, TIMEOUT},
    {"sigwait, sigwaitinfo", c_sigwaits, 0},
    {"futex", c_futex, TIMEOUT},
    {"futex, bits", c_futex_bitset, TIMEOUT},
    {"sem_timedwait", c_sem_timedwait, TIMEOUT - MS}, /* measured on another clock */
    {"sem_clockwait", c_sem_clockwait, TIMEOUT},
    {"pthread_mutex_timedlock", c_mutex_timedlock, TIMEOUT - MS},
    {"pthread_mutex_clocklock", c_mutex_clocklock, TIMEOUT},
    {"pthread_rwlock_clockrdlock", c_rdlock, TIMEOUT},
    {"pthread_rwlock_timedwrlock", c_wrlock, TIMEOUT - MS},
    {"pthread_cond_clockwait", c_cond, TIMEOUT},
    {"pthread_clockjoin_np", c_join, TIMEOUT},
    {"waitpid, wait4, waitid", c_wait, 0},
    {"disk", c_disk, 0},
    {"flock", c_flock, 0},
    {"write of a large block", c_pipe, 0},
};
enum { CALLS = sizeof calls / sizeof *calls };

static void once(unsigned i) {
  burn_ns(20000 + 1000 * (int)pick(400)); /* so that the sampler has just asked, or is about to */
  sigset_t set, old;
  int mask = (int)pick(4);
  sigemptyset(&set);
  if (mask == 1)
    sigaddset(&set, SIGUSR1);
  if (mask == 2)
    sigaddset(&set, SIGUSR2);
  if (mask == 3)
    sigfillset(&set);
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &set, &old), 0);
  handled = 0;
  int64_t from = mono_ns();
  int rc = calls[i].f();
  int64_t took = mono_ns() - from;
  int ours = handled;
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
  atomic_fetch_add(&calls_made, 1);
  if (ours) { /* our own signal came meanwhile: it may have been interrupted, or just be late */
    atomic_fetch_add(&interrupted, 1);
    if (i == CALLS - 1 && rc != OK)
      atomic_store(&bad, 2); /* the reader's sum is not whole then; not a mistake */
    return;
  }
  if (rc != OK || took < calls[i].least) {
    fprintf(stderr, "%s: result %d (EINTR is %d) after %lld us, mask %d\n", calls[i].name, rc, EINTR, (long long)took / 1000, mask);
    atomic_store(&bad, 1);
  }
}

static void *run(void *arg) {
  struct mine m = {.id = (int)(intptr_t)arg, .random = 88172645463325252ull * (uint64_t)(1 + (intptr_t)arg)};
  me = &m;
  CHECK((m.ep = epoll_create1(EPOLL_CLOEXEC)) >= 0);
  CHECK((m.semid = semget(IPC_PRIVATE, 1, 0600)) >= 0);
  CHECK((m.msgid = msgget(IPC_PRIVATE, 0600)) >= 0);
  CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, m.sock) == 0 && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, m.full) == 0);
  CHECK(pipe2(m.queue, O_CLOEXEC) == 0);
  struct timeval tv = {0, TIMEOUT / 1000};
  CHECK(setsockopt(m.sock[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
  CHECK(setsockopt(m.full[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv) == 0);
  char fill[4096] = {0};
  while (send(m.full[0], fill, sizeof fill, MSG_DONTWAIT) > 0)
    ;
  while (send(m.full[0], fill, 1, MSG_DONTWAIT) > 0)
    ;
  struct sockaddr_un name = {.sun_family = AF_UNIX}; /* an abstract name that the kernel chooses */
  CHECK((m.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) >= 0);
  CHECK(bind(m.listener, (struct sockaddr *)&name, sizeof(sa_family_t)) == 0 && listen(m.listener, 4) == 0);
  CHECK(setsockopt(m.listener, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0);
  char path[] = "/tmp/hbtrace-noeintr-XXXXXX";
  CHECK((m.file = mkostemp(path, O_CLOEXEC)) >= 0 && unlink(path) == 0 && ftruncate(m.file, 1 << 17) == 0);
  CHECK((m.lockfile = open("/proc/self/exe", O_RDONLY | O_CLOEXEC)) >= 0 && (m.null = open("/dev/null", O_WRONLY | O_CLOEXEC)) >= 0);
  sigset_t all, old;
  sigfillset(&all);
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &all, &old), 0);
  CHECK_RC(pthread_create(&m.reader, NULL, pipe_reader, &m), 0);
  CHECK_RC(pthread_sigmask(SIG_SETMASK, &old, NULL), 0);
  for (unsigned i = (unsigned)m.id * 7; !atomic_load(&stop); i++)
    once(pick(3) ? i % CALLS : pick(CALLS));
  close(m.queue[1]);
  CHECK_RC(pthread_join(m.reader, NULL), 0);
  semctl(m.semid, 0, IPC_RMID);
  msgctl(m.msgid, IPC_RMID, NULL);
  return NULL;
}

static void on_signal(int sig) {
  (void)sig;
  handled = handled + 1;
}
int main(int argc, char **argv) {
  CHECK(argc == 2);
  int64_t until = mono_ns() + (int64_t)(atof(argv[1]) * 1e9);
  sigset_t rt, all;
  sigfillset(&all);
  sigemptyset(&rt);
  sigaddset(&rt, SIGRTMIN + 1);
  /* While the first thread has it blocked the kernel does not drop it at once, but wakes whoever has not: calls on
   * sockets with a time-out would return EINTR, and no handler would have run. */
  sigaddset(&rt, SIGCHLD);
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &rt, NULL), 0);
  struct sigaction again = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, plain = {.sa_handler = on_signal};
  sigfillset(&plain.sa_mask);
  CHECK(sigaction(SIGUSR1, &again, NULL) == 0 && sigaction(SIGUSR2, &plain, NULL) == 0);
  pthread_mutex_lock(&held);
  pthread_rwlock_wrlock(&rw);
  pthread_t t[THREADS];
  for (intptr_t i = 0; i < THREADS; i++)
    CHECK_RC(pthread_create(&t[i], NULL, run, (void *)i), 0);
  CHECK_RC(pthread_sigmask(SIG_BLOCK, &all, NULL), 0);
  /* a few hundred signals a second; a slow machine takes longer for the same */
  for (unsigned n = 0; (mono_ns() < until || atomic_load(&calls_made) < LEAST) && atomic_load(&bad) != 1; n++) {
    struct timespec s = {0, 3 * MS};
    nanosleep(&s, NULL);
    CHECK_RC(pthread_kill(t[n * 5 % THREADS], n % 2 ? SIGUSR1 : SIGUSR2), 0);
  }
  atomic_store(&stop, 1);
  for (int i = 0; i < THREADS; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  if (getenv("NOEINTR_COUNT"))
    fprintf(stderr, "%ld calls, %ld met by a signal of the program's own\n", atomic_load(&calls_made), atomic_load(&interrupted));
  CHECK(atomic_load(&calls_made) >= LEAST || atomic_load(&bad) == 1);
  puts(atomic_load(&bad) == 1 ? "noeintr failed" : "noeintr ok");
  return atomic_load(&bad) == 1;
}
