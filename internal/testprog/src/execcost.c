/* execcost: forks children that compute for a while, then exec this program, which ends at once. With "truth" it says on stderr
 * how many nanoseconds of CPU time its children used before and during their execs: to the call, and from there to main. */
#include "check.h"
#include <sys/wait.h>

enum { CHILDREN = 40, SAY = 9 };
static volatile uint64_t sum;

static int64_t used(void) { return clock_ns(CLOCK_PROCESS_CPUTIME_ID); }

__attribute__((noinline)) static void before_exec(void) {
  while (used() < 4000000)
    for (int i = 0; i < 1000; i++) sum += (uint64_t)i;
}

static void say(int64_t now) { CHECK(write(SAY, &now, sizeof now) == sizeof now); }

int main(int argc, char **argv) {
  if (argc > 1 && !strcmp(argv[1], "child")) {
    say(used());
    return 0;
  }
  int64_t before = 0, during = 0;
  for (int i = 0; i < CHILDREN; i++) {
    int p[2], status;
    int64_t called, began;
    CHECK(pipe(p) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
      before_exec();
      CHECK(dup2(p[1], SAY) == SAY);
      say(used());
      execl("/proc/self/exe", "execcost", "child", NULL);
      _exit(1);
    }
    close(p[1]);
    CHECK(read(p[0], &called, sizeof called) == sizeof called && read(p[0], &began, sizeof began) == sizeof began);
    CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    close(p[0]);
    before += called;
    during += began - called;
  }
  if (argc > 1 && !strcmp(argv[1], "truth")) fprintf(stderr, "%lld %lld\n", (long long)before, (long long)during);
  return 0;
}
