/* CPU time with a split that is known. cpu SCENARIO MILLISECONDS-OF-CPU TRUTH-FILE; see main.go for the scenarios. */
#include "truth.h"
#include <fcntl.h>

static volatile uint64_t sink;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int null_fd;

/* Never calls anything. */
NOINLINE static void arithmetic(int n)
{
	LEAF();
	uint64_t x = sink | 1;
	for (int i = 0; i < n * 1000; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	sink = x;
}
/* Is at hooks most of the time. */
NOINLINE static void allocating(int n)
{
	void *p[32];
	for (int i = 0; i < n; i++) {
		for (int k = 0; k < 32; k++)
			p[k] = malloc((size_t)(16 + 24 * k));
		for (int k = 0; k < 32; k++)
			free(p[k]);
	}
}
NOINLINE static void locking(int n)
{
	for (int i = 0; i < n * 40; i++) {
		pthread_mutex_lock(&lock);
		sink++;
		pthread_mutex_unlock(&lock);
	}
}
/* In the kernel most of the time. */
NOINLINE static void calling(int n)
{
	char b[256] = {0};
	for (int i = 0; i < n * 4; i++)
		if (write(null_fd, b, sizeof b) < 0)
			abort();
}
static int compare(const void *a, const void *b)
{
	LEAF();
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}
/* In libc, which calls back. */
NOINLINE static void sorting(int n)
{
	uint32_t v[256], x = (uint32_t)sink | 1;
	for (int r = 0; r < n / 16 + 1; r++) {
		for (int i = 0; i < 256; i++)
			v[i] = x = x * 1664525u + 1013904223u;
		qsort(v, 256, sizeof *v, compare);
	}
	sink = v[7];
}
/* Many calls of a function of some nanoseconds. */
NOINLINE static uint64_t tiny(uint64_t x)
{
	LEAF();
	return x * 2862933555777941757u + 3037000493u;
}
NOINLINE static void tinies(int n)
{
	uint64_t x = sink;
	for (int i = 0; i < n * 300; i++)
		x = tiny(x);
	sink = x;
}

static void mix(struct truth *t, int64_t budget_ns, unsigned seed, int scale)
{
	int64_t until = cpu_now() + budget_ns;
	for (unsigned x = seed * 2654435761u + 1; cpu_now() < until;) {
		x = x * 1664525u + 1013904223u; /* lengths vary, or they could fall in step with a sampler */
		int n = (60 + (int)(x >> 26)) * scale;
		BOOK(t, 0, arithmetic(n));
		BOOK(t, 1, allocating(n));
		BOOK(t, 2, locking(n));
		BOOK(t, 3, calling(n));
		BOOK(t, 4, sorting(n));
		BOOK(t, 5, tinies(n));
	}
}

struct job {
	int64_t budget_ns;
	unsigned seed;
	int kind;
};

static void *mix_thread(void *arg)
{
	struct job *j = arg;
	struct truth t = {0};
	mix(&t, j->budget_ns, j->seed, 1);
	truth_add(&t);
	return 0;
}

/* A thread of 2 ms: a sampler of 1 ms may miss it. One of four spends its time elsewhere. */
NOINLINE static void common(int64_t until) { while (cpu_now() < until) arithmetic(5); }
NOINLINE static void rare(int64_t until) { while (cpu_now() < until) arithmetic(5); }
static void *brief_thread(void *arg)
{
	struct job *j = arg;
	struct truth t = {0};
	int64_t until = cpu_now() + j->budget_ns;
	if (j->kind % 4 == 3)
		BOOK(&t, 1, rare(until));
	else
		BOOK(&t, 0, common(until));
	truth_add(&t);
	return 0;
}

/* In step with the clock: one function in the first half of each period, another in the second. */
NOINLINE static void first_half(int64_t period) { while (mono_now() % period < period / 2) arithmetic(1); }
NOINLINE static void second_half(int64_t period) { while (mono_now() % period >= period / 2) arithmetic(1); }
static void in_step(struct truth *t, int64_t budget_ns, int64_t period)
{
	int64_t until = cpu_now() + budget_ns;
	while (cpu_now() < until) {
		BOOK(t, 0, first_half(period));
		BOOK(t, 1, second_half(period));
	}
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	const char *scenario = argv[1];
	int64_t budget = atoll(argv[2]) * 1000000;
	FILE *out = truth_open(argc, argv);
	struct truth t = {0};
	null_fd = open("/dev/null", O_WRONLY);
	if (!strcmp(scenario, "mix")) {
		mix(&t, budget, 1, 1);
	} else if (!strcmp(scenario, "long")) {
		mix(&t, budget, 1, 40);
	} else if (!strcmp(scenario, "threads")) {
		long n = 4 * sysconf(_SC_NPROCESSORS_ONLN);
		pthread_t *id = calloc((size_t)n, sizeof *id);
		struct job *j = calloc((size_t)n, sizeof *j);
		for (long i = 0; i < n; i++) {
			j[i] = (struct job){budget / n, (unsigned)i, 0};
			pthread_create(&id[i], 0, mix_thread, &j[i]);
		}
		for (long i = 0; i < n; i++)
			pthread_join(id[i], 0);
	} else if (!strcmp(scenario, "brief")) {
		struct job j[4];
		pthread_t id[4];
		for (int k = 0; k * INT64_C(2000000) < budget; k += 4) {
			for (int i = 0; i < 4; i++) {
				j[i] = (struct job){2000000, 0, i};
				pthread_create(&id[i], 0, brief_thread, &j[i]);
			}
			for (int i = 0; i < 4; i++)
				pthread_join(id[i], 0);
		}
	} else if (!strcmp(scenario, "step1ms")) {
		in_step(&t, budget, 1000000);
	} else if (!strcmp(scenario, "step2ms")) {
		in_step(&t, budget, 2000000);
	} else {
		return 2;
	}
	truth_add(&t);
	truth_write(out);
	return fclose(out);
}
