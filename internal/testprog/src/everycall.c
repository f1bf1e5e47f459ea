/* everycall: the wrapped functions that no other program here calls, each with its result, errno and effect checked, while
 * signals of the sampler fall everywhere. What the kernel or the file system does not have is left out in the same way
 * every time. */
#include "check.h"
#include <aio.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <termios.h>
#include <threads.h>
#include <unistd.h>

/* what -D_FORTIFY_SOURCE makes of calls */
ssize_t __read_chk(int, void *, size_t, size_t);
ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
ssize_t __pread64_chk(int, void *, size_t, off_t, size_t);
ssize_t __recv_chk(int, void *, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
int __poll_chk(struct pollfd *, nfds_t, int, size_t);
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
int __open_2(const char *, int);
int __open64_2(const char *, int);
int __openat_2(int, const char *, int);
int __openat64_2(int, const char *, int);
size_t __fread_chk(void *, size_t, size_t, size_t, FILE *);
char *__fgets_chk(char *, size_t, int, FILE *);
void __longjmp_chk(jmp_buf, int) __attribute__((noreturn));

static char dir[] = "/tmp/hbtrace-everycall-XXXXXX", path[64];

/* same result, or the same refusal */
static void refused_or(const char *name, long r, long want) {
  if (r == -1 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == EPERM))
    printf("%s: not here\n", name);
  else if (r != want)
    printf("%s: %ld, want %ld, errno %d\n", name, r, want, errno);
}

static void files(void) {
  char b[64], c[64];
  struct iovec v = {b, 8}, w = {c, 8};
  int fd = open64(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0);
  memcpy(b, "12345678abcdefgh", 16);
  CHECK(pwrite64(fd, b, 16, 0) == 16 && pread64(fd, c, 16, 0) == 16 && !memcmp(b, c, 16));
  CHECK(pwritev(fd, &v, 1, 16) == 8 && preadv(fd, &w, 1, 16) == 8 && !memcmp(b, c, 8));
  CHECK(pwritev64(fd, &v, 1, 24) == 8 && preadv64(fd, &w, 1, 24) == 8);
  CHECK(pwritev2(fd, &v, 1, 32, 0) == 8 && preadv2(fd, &w, 1, 32, 0) == 8);
  CHECK(pwritev64v2(fd, &v, 1, 40, 0) == 8 && preadv64v2(fd, &w, 1, 40, 0) == 8);
  CHECK(fsync(fd) == 0 && syncfs(fd) == 0);
  CHECK(fallocate(fd, 0, 0, 100) == 0 && fallocate64(fd, 0, 0, 100) == 0);
  CHECK_RC(posix_fallocate(fd, 0, 200), 0);
  CHECK_RC(posix_fallocate64(fd, 0, 4096), 0);
  CHECK(lseek(fd, 0, SEEK_END) == 4096);
  CHECK(lseek(fd, 0, SEEK_SET) == 0 && lockf(fd, F_LOCK, 10) == 0 && lockf64(fd, F_ULOCK, 10) == 0);
  struct flock64 l = {.l_type = F_WRLCK, .l_len = 5};
  CHECK(fcntl64(fd, F_SETLKW64, &l) == 0 && fcntl64(fd, F_GETFL) >= 0);
  CHECK(__read_chk(fd, c, 8, sizeof c) == 8 && !memcmp(c, "12345678", 8));
  CHECK(__pread_chk(fd, c, 4, 8, sizeof c) == 4 && !memcmp(c, "abcd", 4) && __pread64_chk(fd, c, 4, 12, sizeof c) == 4 && !memcmp(c, "efgh", 4));
  void *m = mmap64(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(m != MAP_FAILED);
  *(int *)m = 77;
  m = mremap(m, 1 << 20, 3 << 20, MREMAP_MAYMOVE);
  CHECK(m != MAP_FAILED && *(int *)m == 77 && munmap(m, 3 << 20) == 0);
  CHECK(mremap((void *)4096, 1 << 20, 2 << 20, 0) == MAP_FAILED && errno == EFAULT);
  m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(m != MAP_FAILED && msync(m, 4096, MS_SYNC) == 0 && munmap(m, 4096) == 0);
  struct aiocb a = {.aio_fildes = fd, .aio_buf = c, .aio_nbytes = 8};
  const struct aiocb *list[] = {&a};
  CHECK(aio_read(&a) == 0);
  while (aio_error(&a) == EINPROGRESS)
    CHECK(aio_suspend(list, 1, NULL) == 0 || errno == EINTR); /* aio's own helper ends it by a signal, perhaps */
  CHECK(aio_return(&a) == 8);
  CHECK(close(fd) == 0);
  const int ways[] = {openat(AT_FDCWD, path, O_RDONLY), openat64(AT_FDCWD, path, O_RDONLY), __open_2(path, O_RDONLY), __open64_2(path, O_RDONLY),
                      __openat_2(AT_FDCWD, path, O_RDONLY), __openat64_2(AT_FDCWD, path, O_RDONLY), creat(path, 0600), creat64(path, 0600)};
  for (unsigned i = 0; i < sizeof ways / sizeof *ways; i++)
    CHECK(ways[i] >= 0 && close(ways[i]) == 0);
  CHECK(openat(AT_FDCWD, "/nonexistent/x", O_RDONLY) == -1 && errno == ENOENT);
  CHECK(tcdrain(-1) == -1 && errno == EBADF);
}

static void pipes(void) {
  int p[2], q[2];
  char b[64];
  CHECK(pipe(p) == 0 && pipe(q) == 0);
  struct iovec v = {(void *)"hello", 5};
  CHECK(vmsplice(p[1], &v, 1, 0) == 5);
  CHECK(tee(p[0], q[1], 5, 0) == 5 && read(q[0], b, 5) == 5 && !memcmp(b, "hello", 5));
  CHECK(splice(p[0], NULL, q[1], NULL, 5, 0) == 5 && read(q[0], b, 64) == 5);
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  off64_t at = 0;
  CHECK(fd >= 0 && write(fd, "file", 4) == 4 && sendfile64(q[1], fd, &at, 4) == 4 && at == 4 && read(q[0], b, 64) == 4);
  CHECK(close(fd) == 0 && close(p[0]) == 0 && close(p[1]) == 0);
  struct pollfd f = {.fd = q[0], .events = POLLIN};
  struct timespec ms = {0, 1000000};
  CHECK(__poll_chk(&f, 1, 1, sizeof f) == 0 && __ppoll_chk(&f, 1, &ms, NULL, sizeof f) == 0);
  int ep = epoll_create1(EPOLL_CLOEXEC);
  struct epoll_event want = {.events = EPOLLIN, .data.fd = q[0]}, got;
  CHECK(ep >= 0 && epoll_ctl(ep, EPOLL_CTL_ADD, q[0], &want) == 0 && epoll_wait(ep, &got, 1, 1) == 0);
  CHECK(epoll_ctl(ep, EPOLL_CTL_ADD, q[0], &want) == -1 && errno == EEXIST);
  CHECK(write(q[1], "e", 1) == 1 && epoll_wait(ep, &got, 1, -1) == 1 && got.data.fd == q[0]);
  CHECK(epoll_ctl(ep, EPOLL_CTL_DEL, q[0], NULL) == 0 && close(ep) == 0 && read(q[0], (char[1]){0}, 1) == 1);
  CHECK(close(q[0]) == 0 && close(q[1]) == 0);
}

static void sockets(void) {
  char b[16];
  int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0);
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t n = sizeof a;
  CHECK(l >= 0 && c >= 0 && bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 4) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0);
  CHECK(connect(c, (struct sockaddr *)&a, n) == 0);
  int s = accept4(l, NULL, NULL, SOCK_CLOEXEC);
  CHECK(s >= 0 && send(c, "abcd", 4, 0) == 4);
  CHECK(__recv_chk(s, b, 2, sizeof b, 0) == 2 && __recvfrom_chk(s, b, 2, sizeof b, 0, NULL, NULL) == 2 && b[0] == 'c');
  CHECK(close(s) == 0 && close(c) == 0 && close(l) == 0);
  CHECK(connect(-1, (struct sockaddr *)&a, n) == -1 && errno == EBADF);
  struct addrinfo hints = {.ai_flags = AI_NUMERICHOST, .ai_family = AF_INET}, *r = NULL;
  CHECK(getaddrinfo("127.0.0.1", NULL, &hints, &r) == 0 && r);
  freeaddrinfo(r);
  CHECK(getaddrinfo("not a number", NULL, &hints, &r) == EAI_NONAME);
}

static void queues(void) {
  char name[64], b[16];
  snprintf(name, sizeof name, "/hbtrace-everycall-%d", (int)getpid());
  struct mq_attr attr = {.mq_maxmsg = 2, .mq_msgsize = sizeof b};
  mqd_t q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
  refused_or("mq_open", q < 0 ? -1 : 0, 0);
  if (q < 0)
    return;
  struct timespec soon = after_ns(CLOCK_REALTIME, 2000000);
  unsigned prio;
  CHECK(mq_send(q, "one", 4, 1) == 0 && mq_timedsend(q, "two", 4, 2, &soon) == 0);
  CHECK(mq_timedsend(q, "more", 5, 0, &soon) == -1 && errno == ETIMEDOUT);
  CHECK(mq_receive(q, b, sizeof b, &prio) == 4 && prio == 2 && mq_timedreceive(q, b, sizeof b, &prio, &soon) == 4 && prio == 1);
  CHECK(mq_timedreceive(q, b, sizeof b, &prio, &soon) == -1 && errno == ETIMEDOUT);
  CHECK(mq_close(q) == 0 && mq_unlink(name) == 0);
}

static void streams(void) {
  char b[32], *line = NULL;
  size_t n = 0;
  FILE *f = fopen(path, "w+");
  CHECK(f && fwrite_unlocked("line one\nxyz\nrest", 1, 17, f) == 17 && fflush(f) == 0);
  rewind(f);
  CHECK(__fgets_chk(b, sizeof b, 6, f) && !strcmp(b, "line "));
  CHECK(fgetc(f) == 'o' && getc(f) == 'n');
  CHECK(getdelim(&line, &n, '\n', f) == 2 && !strcmp(line, "e\n"));
  CHECK(fread(b, 1, 2, f) == 2 && fread_unlocked(b + 2, 1, 2, f) == 2 && !memcmp(b, "xyz\n", 4) && __fread_chk(b, sizeof b, 1, 4, f) == 4 && !memcmp(b, "rest", 4));
  CHECK(fgetc(f) == EOF && feof(f));
  free(line);
  CHECK(fclose(f) == 0);
}

static pthread_spinlock_t spin;
static mtx_t mutex;
static cnd_t changed;
static int turns, waiting;

static int thread(void *arg) {
  for (int i = 0; i < 200; i++) {
    CHECK_RC(pthread_spin_lock(&spin), 0);
    turns++;
    if (i % 50 == 0)
      burn_ns(100000);
    CHECK_RC(pthread_spin_unlock(&spin), 0);
  }
  CHECK(mtx_lock(&mutex) == thrd_success);
  waiting++;
  while (waiting < 3)
    CHECK(cnd_wait(&changed, &mutex) == thrd_success);
  CHECK(cnd_broadcast(&changed) == thrd_success && mtx_unlock(&mutex) == thrd_success);
  return (int)(intptr_t)arg;
}

static void locks(void) {
  thrd_t t[3];
  CHECK_RC(pthread_spin_init(&spin, 0), 0);
  CHECK(mtx_init(&mutex, mtx_plain) == thrd_success && cnd_init(&changed) == thrd_success);
  turns = waiting = 0;
  for (intptr_t i = 0; i < 3; i++)
    CHECK(thrd_create(&t[i], thread, (void *)(i + 5)) == thrd_success);
  for (int i = 0, r; i < 3; i++)
    CHECK(thrd_join(t[i], &r) == thrd_success && r == i + 5);
  CHECK(turns == 600);
  cnd_destroy(&changed);
  mtx_destroy(&mutex);
}

static void others(void) {
  uint64_t x = 0;
  CHECK(getrandom(&x, sizeof x, 0) == sizeof x);
  pid_t pid = fork();
  CHECK(pid >= 0);
  if (pid == 0) {
    if (x & 1)
      _Exit(12); /* no buffers are written, no handlers run */
    _exit(12);
  }
  int st;
  CHECK(wait3(&st, 0, NULL) == pid && WIFEXITED(st) && WEXITSTATUS(st) == 12);
  CHECK(wait3(&st, 0, NULL) == -1 && errno == ECHILD);
  jmp_buf env;
  volatile int came = 0;
  if (_setjmp(env) == 0)
    _longjmp(env, 3);
  else
    came++;
  if (_setjmp(env) == 0)
    __longjmp_chk(env, 3);
  else
    came++;
  CHECK(came == 2);
  CHECK(syscall(SYS_io_getevents, 0, 0, 0, NULL, NULL) == -1 && (errno == EINVAL || errno == ENOSYS || errno == EPERM));
  CHECK(syscall(SYS_io_uring_enter, -1, 0, 1, 0, NULL, 0) == -1 && (errno == EBADF || errno == ENOSYS || errno == EPERM));
}

int main(void) {
  CHECK(mkdtemp(dir));
  snprintf(path, sizeof path, "%s/file", dir);
  void (*const all[])(void) = {files, pipes, sockets, queues, streams, locks, others};
  for (int round = 0; round < 15; round++)
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
      burn_ns(300000);
      all[i]();
    }
  CHECK(unlink(path) == 0 && rmdir(dir) == 0);
  puts("everycall ok");
  return 0;
}
