/* epollecho: a server thread in epoll_wait over 16 connections, and a client thread that keeps eight requests under way: what
 * an event loop does when it is busy. */
#include "workload.h"
#include <sys/epoll.h>
#include <sys/socket.h>

enum { CONNECTIONS = 16, UNDER_WAY = 8 };
static long rounds;
static int sock[CONNECTIONS][2];

NOINLINE static void answer(int fd) {
  char buf[128];
  ssize_t n = read(fd, buf, sizeof buf);
  if (n > 0 && write(fd, buf, (size_t)n) != n)
    abort();
}

static void *server(void *arg) {
  int ep = epoll_create1(0);
  for (int i = 0; i < CONNECTIONS; i++) {
    struct epoll_event e = {.events = EPOLLIN, .data.fd = sock[i][1]};
    epoll_ctl(ep, EPOLL_CTL_ADD, sock[i][1], &e);
  }
  for (long left = rounds; left > 0;) {
    struct epoll_event e[CONNECTIONS];
    int n = epoll_wait(ep, e, CONNECTIONS, -1);
    for (int i = 0; i < n; i++, left--)
      answer(e[i].data.fd);
  }
  return arg;
}

int main(int argc, char **argv) {
  rounds = workload_begin(argc, argv, 200000);
  rounds -= rounds % UNDER_WAY;
  for (int i = 0; i < CONNECTIONS; i++)
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock[i]))
      return 1;
  pthread_t t;
  pthread_create(&t, NULL, server, NULL);
  char buf[64] = "request";
  uint64_t sum = 0;
  for (long i = 0; i < rounds; i += UNDER_WAY) {
    for (int k = 0; k < UNDER_WAY; k++)
      if (write(sock[(i + k) % CONNECTIONS][0], buf, sizeof buf) != sizeof buf)
        abort();
    for (int k = 0; k < UNDER_WAY; k++)
      if (read(sock[(i + k) % CONNECTIONS][0], buf, sizeof buf) != sizeof buf)
        abort();
    sum += (uint64_t)buf[0];
  }
  pthread_join(t, NULL);
  return workload_end(sum);
}
