/* What a program knows of itself: CPU time by function, by the thread's own CPU clock; waits, by CLOCK_MONOTONIC;
 * allocations, by counting. Written at the end to the file that the last argument names, a fact a line. */
#ifndef TRUTH_H
#define TRUTH_H
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone, no_icf)) /* nor folded into its double */

/* gcc leaves frame pointers out of functions that use no stack, whatever it is told; perf -g then loses their callers. */
#ifdef FRAMES
#define LEAF() __asm__ volatile("" : : "r"(__builtin_frame_address(0)))
#else
#define LEAF() (void)0
#endif

static inline int64_t now_of(clockid_t c)
{
	struct timespec t;
	clock_gettime(c, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}
static inline int64_t cpu_now(void) { return now_of(CLOCK_THREAD_CPUTIME_ID); }
static inline int64_t mono_now(void) { return now_of(CLOCK_MONOTONIC); }

enum { TRUTH_FUNCTIONS = 16 };
struct truth {
	int64_t ns[TRUTH_FUNCTIONS];
};
static const char *truth_names[TRUTH_FUNCTIONS];
static struct truth truth_sum;
static pthread_mutex_t truth_lock = PTHREAD_MUTEX_INITIALIZER;

/* Calls one function and books the CPU time that it took. A read of the clock is a system call of some 0.3 us, half of
 * which falls into the booked time: calls are to take 100 us and more. */
#define BOOK(t, i, call) do { int64_t from_ = cpu_now(); call; (t)->ns[i] += cpu_now() - from_; truth_names[i] = #call; } while (0)

static inline void truth_add(const struct truth *t)
{
	pthread_mutex_lock(&truth_lock);
	for (int i = 0; i < TRUTH_FUNCTIONS; i++)
		truth_sum.ns[i] += t->ns[i];
	pthread_mutex_unlock(&truth_lock);
}

static inline void truth_write(FILE *f)
{
	for (int i = 0; i < TRUTH_FUNCTIONS; i++)
		if (truth_names[i])
			fprintf(f, "cpu %.*s %lld\n", (int)strcspn(truth_names[i], "("), truth_names[i], (long long)truth_sum.ns[i]);
	fprintf(f, "total %lld\n", (long long)now_of(CLOCK_PROCESS_CPUTIME_ID));
}

static inline FILE *truth_open(int argc, char **argv)
{
	FILE *f = fopen(argv[argc - 1], "w");
	if (!f) {
		perror(argv[argc - 1]);
		exit(1);
	}
	return f;
}
#endif
