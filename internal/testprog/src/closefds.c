/* closefds: closes every descriptor from 3 up (a loop, closefrom, close_range), then checks that numbers come
 * out lowest first, that none was open that it did not open, and goes on working. */
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>

static int open_fds(void) {
  int n = 0;
  for (int fd = 0; fd < 1024; fd++)
    if (fcntl(fd, F_GETFD) >= 0)
      n++;
  return n;
}

static void *work(void *arg) {
  for (int i = 0; i < 30; i++) {
    burn_ns(1000000);
    free(malloc(1000));
    CHECK(poll(NULL, 0, 1) == 0);
  }
  return arg;
}

int main(void) {
  printf("%d descriptors open at start\n", open_fds());
  for (int i = 0; i < 3; i++) {
    if (i == 0)
      for (int fd = 3; fd < 1024; fd++)
        close(fd);
    else if (i == 1)
      closefrom(3);
    else
      CHECK(close_range(3, ~0u, 0) == 0);
    pthread_t t[2];
    for (int j = 0; j < 2; j++)
      CHECK_RC(pthread_create(&t[j], NULL, work, NULL), 0);
    for (int j = 0; j < 2; j++)
      CHECK_RC(pthread_join(t[j], NULL), 0);
    int fd[3];
    for (int j = 0; j < 3; j++) {
      fd[j] = open("/dev/null", O_RDWR);
      CHECK(fd[j] == 3 + j);
    }
    CHECK(write(fd[0], "x", 1) == 1);
  }
  printf("%d descriptors open at the end\n", open_fds());
  return 0;
}
