/* bareenv: prints its whole environment, as environ, main's argument and getenv have it, and checks that the kernel's vector
 * is found behind it. Then, if there are arguments left, executes itself with them in the environment that the first
 * of them names: "same", "none" (no variables), "null" (no environment at all), "preload" (another LD_PRELOAD), "empty" (an empty one). */
#include "check.h"
#include <elf.h>
#include <spawn.h>
#include <sys/auxv.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv, char **envp) {
  size_t n = 0;
  CHECK(envp == environ);
  for (; envp[n]; n++) {
    CHECK(strchr(envp[n], '=') != NULL);
    printf("%s\n", envp[n]);
  }
  printf("%zu variables\n", n);
  fflush(stdout);
  const Elf64_auxv_t *v = (const Elf64_auxv_t *)(const void *)(envp + n + 1);
  int pages = 0, entry = 0;
  for (; v->a_type != AT_NULL; v++) {
    pages += v->a_type == AT_PAGESZ && v->a_un.a_val == getauxval(AT_PAGESZ);
    entry += v->a_type == AT_ENTRY && v->a_un.a_val == getauxval(AT_ENTRY);
  }
  CHECK(pages == 1 && entry == 1);
  if (argc < 2)
    return 0;
  char *some[] = {"FIRST=1", "LD_PRELOAD=libc.so.6", "LAST=2", NULL}, *empty[] = {"LD_PRELOAD=", "LAST=2", NULL}, *none[] = {NULL};
  char **env = !strcmp(argv[1], "none") ? none : !strcmp(argv[1], "null") ? NULL : !strcmp(argv[1], "preload") ? some : !strcmp(argv[1], "empty") ? empty : environ;
  char *next[16] = {argv[0]};
  for (int i = 2; i <= argc; i++)
    next[i - 1] = argv[i];
  pid_t child;
  int status;
  if (argc % 2) {
    execve("/proc/self/exe", next, env);
    return 98;
  }
  CHECK_RC(posix_spawn(&child, "/proc/self/exe", NULL, NULL, next, env ? env : none), 0);
  CHECK(waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 97;
}
