/* env: changes its environment and executes itself: what the next program sees must be what was set. Modes:
 * clear (execve with no environment), clearenv, set. The tracer's own two variables are left out of the print. */
#include "check.h"

extern char **environ;

static int cmp(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static int show(void) {
  char *list[200];
  size_t n = 0;
  for (char **e = environ; e && *e && n < 200; e++)
    if (strncmp(*e, "LD_PRELOAD=", 11) && strncmp(*e, "HBTRACE", 7) && strncmp(*e, "_=", 2))
      list[n++] = *e;
  qsort(list, n, sizeof *list, cmp);
  printf("%zu variables\n", n);
  for (size_t i = 0; i < n; i++)
    puts(list[i]);
  return 0;
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "show";
  char *args[] = {argv[0], "show", NULL};
  if (!strcmp(mode, "show")) {
    burn_ns(5000000);
    return show();
  }
  fflush(stdout);
  if (!strcmp(mode, "clear")) {
    char *none[] = {NULL};
    execve("/proc/self/exe", args, none);
  } else if (!strcmp(mode, "clearenv")) {
    CHECK(clearenv() == 0);
    CHECK(setenv("ONLY", "this", 1) == 0);
    execv("/proc/self/exe", args);
  } else {
    CHECK(setenv("HB_A", "1", 1) == 0);
    CHECK(setenv("HB_B", "two words", 1) == 0);
    CHECK(setenv("HB_A", "changed", 1) == 0);
    CHECK(unsetenv("HB_B") == 0);
    CHECK(putenv("HB_C=by putenv") == 0);
    CHECK(getenv("HB_B") == NULL && !strcmp(getenv("HB_A"), "changed"));
    execv("/proc/self/exe", args);
  }
  return 98;
}
