//go:build ignore

/* writer: threads that write a given number of records a second to the ring of a session whose segment is descriptor 3.
 * Arguments: threads, records a second of all of them, seconds (0: until killed). */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int side_open(void *segment, uint32_t pid);
uint32_t side_join(uint64_t now, int first);
void side_sample(uint64_t now);

static double per_thread, seconds;
static uint64_t begin;

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void *work(void *arg) {
  if (!side_join(now_ns(), !arg)) {
    fputs("writer: no slot for a thread\n", stderr);
    exit(1);
  }
  uint64_t written = 0;
  for (;;) {
    uint64_t t = now_ns();
    double at = (double)(t - begin) / 1e9;
    if (seconds > 0 && at >= seconds) return 0;
    /* at most 4 ms of what is due at once: who was kept from running does not make up for it */
    uint64_t due = (uint64_t)(at * per_thread), most = (uint64_t)(per_thread / 250) + 1;
    if (due - written > most) written = due - most;
    for (; written < due; written++) side_sample(t++);
    struct timespec nap = {0, 1000000};
    nanosleep(&nap, 0);
  }
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  int threads = atoi(argv[1]);
  per_thread = atof(argv[2]) / threads;
  seconds = atof(argv[3]);
  struct stat st;
  if (fstat(3, &st)) return 3;
  void *segment = mmap(0, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
  if (segment == MAP_FAILED || side_open(segment, (uint32_t)getpid())) return 4;
  begin = now_ns();
  pthread_t t;
  for (intptr_t i = 1; i < threads; i++)
    if (pthread_create(&t, 0, work, (void *)i)) return 5;
  work(0);
  usleep(20000); /* the others come to their end */
  return 0;
}
