/* goes: goes ACTION FILE LIBRARY: a program that works with two threads, and at SIGUSR1 does one of: exit, exec, fork, vfork, dlclose. Then it makes
 * FILE. SIGTERM ends it: it prints RIGHT. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t stop, go;
static int wrong;
static void on_term(int sig) { stop = sig; }
static void on_go(int sig) { go = sig; }

static void *work(void *arg) {
  pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  while (!stop) {
    char *p = malloc(200);
    memset(p, 7, 200);
    pthread_mutex_lock(&lock);
    if (p[199] != 7) wrong = 1;
    pthread_mutex_unlock(&lock);
    free(p);
    usleep(300);
  }
  return arg;
}

static void forked(int (*make)(void)) {
  int status = -1;
  pid_t pid = make();
  if (!pid) {
    for (int i = 0; i < 100; i++) free(malloc(100));
    usleep(1000);
    _exit(5);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 5) wrong = 2;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  const char *action = argv[1];
  void *library = dlopen(argv[3], RTLD_NOW);
  int (*nap)(void) = library ? (int (*)(void))dlsym(library, "nap") : NULL;
  pthread_t t[2];
  sigset_t all;
  if (!nap) return 3;
  signal(SIGTERM, on_term);
  signal(SIGUSR1, on_go);
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, NULL);
  for (int i = 0; i < 2; i++) pthread_create(&t[i], NULL, work, NULL);
  pthread_sigmask(SIG_UNBLOCK, &all, NULL);
  while (!stop) {
    if (library) nap();
    usleep(500);
    if (!go) continue;
    go = 0;
    if (!strcmp(action, "exit")) exit(0);
    if (!strcmp(action, "exec")) execl("/proc/self/exe", argv[0], "done", argv[2], argv[3], (char *)NULL);
    if (!strcmp(action, "fork")) forked(fork);
    if (!strcmp(action, "vfork")) {
      pid_t pid = vfork();
      int status = -1;
      if (!pid) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(6);
      }
      if (pid < 0 || waitpid(pid, &status, 0) != pid || status) wrong = 3;
    }
    if (!strcmp(action, "dlclose")) dlclose(library), library = NULL;
    close(open(argv[2], O_CREAT | O_WRONLY, 0600));
  }
  for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
  printf("%s %d\n", wrong ? "WRONG" : "RIGHT", wrong);
  return wrong;
}
