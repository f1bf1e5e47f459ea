/* Waits and slow calls of known length: blocked ROUNDS TRUTH-FILE. A line per wait: what, from, to, how
 * often the thread slept in it, how often it was preempted, and how long a fixed piece of work took right behind it: what the
 * machine does to anything of some microseconds that runs there. */
#include "truth.h"
#include <poll.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/resource.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, cond_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static sem_t sem;
static int to_worker[2], rounds;
static unsigned turn;

struct fact {
	const char *what;
	int64_t from, to;
	int64_t work; /* ns */
	long slept, preempted; /* context switches: only who slept has waited, and who was preempted has waited for a CPU too */
};
static struct fact facts[1 << 16];
static int n_facts;

/* Some 4 us. */
static volatile uint64_t sink;
static inline void work(void)
{
	uint64_t x = sink | 1;
	for (int i = 0; i < 3500; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	sink = x;
}

#define FACT(name, call) do { \
	struct rusage u_, v_; \
	getrusage(RUSAGE_THREAD, &u_); \
	int64_t a_ = mono_now(); \
	call; \
	int64_t b_ = mono_now(); \
	work(); \
	int64_t c_ = mono_now(); \
	getrusage(RUSAGE_THREAD, &v_); \
	if (n_facts < (int)(sizeof facts / sizeof *facts)) \
		facts[n_facts++] = (struct fact){name, a_, b_, c_ - b_, v_.ru_nvcsw - u_.ru_nvcsw, v_.ru_nivcsw - u_.ru_nivcsw}; \
} while (0)

static void nap(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};
	clock_nanosleep(CLOCK_MONOTONIC, 0, &t, 0);
}

/* Makes the other thread wait in each way, for 0.2 to 5 ms. */
static void *releaser(void *arg)
{
	(void)arg;
	unsigned x = 7;
	for (int r = 0; r < rounds; r++) {
		x = x * 1664525u + 1013904223u;
		long us = 200 + (long)(x >> 20);
		pthread_mutex_lock(&lock);
		__atomic_add_fetch(&turn, 1, __ATOMIC_SEQ_CST); /* now the other one comes for the lock */
		nap(us);
		pthread_mutex_unlock(&lock);
		nap(us);
		pthread_mutex_lock(&cond_lock);
		__atomic_add_fetch(&turn, 1, __ATOMIC_SEQ_CST);
		pthread_cond_signal(&cond);
		pthread_mutex_unlock(&cond_lock);
		nap(us);
		sem_post(&sem);
		nap(us);
		if (write(to_worker[1], "x", 1) != 1)
			abort();
		nap(us);
		if (write(to_worker[1], "y", 1) != 1)
			abort();
		nap(us);
	}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	rounds = atoi(argv[1]);
	FILE *out = truth_open(argc, argv);
	sem_init(&sem, 0, 0);
	if (pipe(to_worker))
		return 1;
	pthread_t id;
	pthread_create(&id, 0, releaser, 0);
	char c;
	for (unsigned r = 0; r < (unsigned)rounds; r++) {
		while (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) < 2 * r + 1)
			sched_yield();
		FACT("mutex", pthread_mutex_lock(&lock));
		pthread_mutex_unlock(&lock);
		FACT("mutex", pthread_mutex_lock(&cond_lock));
		if (__atomic_load_n(&turn, __ATOMIC_SEQ_CST) < 2 * r + 2)
			FACT("cond", pthread_cond_wait(&cond, &cond_lock));
		pthread_mutex_unlock(&cond_lock);
		FACT("sem", sem_wait(&sem));
		FACT("read", if (read(to_worker[0], &c, 1) != 1) abort());
		struct pollfd p = {to_worker[0], POLLIN, 0};
		FACT("poll", poll(&p, 1, -1));
		FACT("read", if (read(to_worker[0], &c, 1) != 1) abort());
		FACT("sleep", nap(500));
	}
	pthread_join(id, 0);
	for (int i = 0; i < n_facts; i++)
		fprintf(out, "wait %s %lld %lld %ld %ld %lld\n", facts[i].what, (long long)facts[i].from, (long long)facts[i].to, facts[i].slept,
			facts[i].preempted, (long long)facts[i].work);
	return fclose(out);
}
