/* family: a program to attach to that forks, spawns, loads and unloads meanwhile. argv[1] is a library with int nap(void), which sleeps. On
 * SIGUSR1 it forks a child that stays; SIGTERM ends both: it prints RIGHT, or what was wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static volatile sig_atomic_t stop, keep;
static long eintr, wrong, forked, spawned, loaded;

static void on_term(int sig) { stop = sig; }
static void on_usr1(int sig) { keep = sig; }

static int reap(pid_t pid) {
  int status;
  while (waitpid(pid, &status, 0) < 0)
    if (errno != EINTR) return -1;
  return status;
}

static void *burn(void *arg) {
  for (volatile long x = 0; !stop; x++)
    if (x % 100000 == 0) free(malloc(64));
  return arg;
}

static void *fork_children(void *arg) {
  while (!stop) {
    pid_t pid = fork();
    if (pid == 0) {
      for (int i = 0; i < 20; i++) {
        char *p = malloc(1000);
        memset(p, i, 1000);
        if (usleep(500)) _exit(1);
        free(p);
      }
      _exit(0);
    }
    if (pid < 0 || reap(pid)) wrong++;
    forked++;
    char *args[] = {"true", NULL};
    if (posix_spawnp(&pid, "true", NULL, NULL, args, environ) || reap(pid)) wrong++;
    spawned++;
  }
  return arg;
}

static void *load(void *library) {
  while (!stop) {
    void *h = dlopen(library, RTLD_NOW);
    int (*nap)(void) = h ? (int (*)(void))dlsym(h, "nap") : NULL;
    if (!nap) wrong++;
    for (int i = 0; nap && i < 20; i++)
      if (nap()) __atomic_add_fetch(&eintr, 1, __ATOMIC_RELAXED);
    if (h) dlclose(h);
    loaded++;
  }
  return NULL;
}

/* The child that stays: 1 when a sleep of its own was ended by a signal that it did not get from the program. */
static int stay(void) {
  int bad = 0;
  while (!stop) {
    free(malloc(100));
    if (usleep(1000) && !stop) bad = 1;
  }
  return bad;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  pthread_t t[3];
  sigset_t set;
  signal(SIGTERM, on_term);
  signal(SIGUSR1, on_usr1);
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, NULL);
  pthread_create(&t[0], NULL, burn, NULL);
  pthread_create(&t[1], NULL, fork_children, NULL);
  pthread_create(&t[2], NULL, load, argv[1]);
  pthread_sigmask(SIG_UNBLOCK, &set, NULL);
  pid_t child = 0;
  while (!stop) {
    usleep(5000);
    if (!keep || child) continue;
    if ((child = fork()) == 0) _exit(stay());
  }
  for (int i = 0; i < 3; i++) pthread_join(t[i], NULL);
  if (child && (kill(child, SIGTERM) || reap(child))) wrong++;
  int right = !eintr && !wrong && forked && spawned && loaded;
  printf("%s: %ld forked, %ld spawned, %ld loaded, %ld EINTR, %ld wrong\n", right ? "RIGHT" : "WRONG", forked, spawned, loaded, eintr, wrong);
  return !right;
}
