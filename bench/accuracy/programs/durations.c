/* One function, called again and again: durations SCENARIO CALLS TRUTH-FILE. A line per call of it and of what it calls: name,
 * from, to, CPU time. In "hooked" memory is asked for between calls and inside of them; in "silent" nowhere. */
#include "truth.h"

struct call {
	const char *name;
	int64_t from, to, cpu; /* cpu: time that the thread had a processor */
};
static struct call *calls;
static int n_calls, hooked;
static volatile uint64_t sink;

static void call_hook(void)
{
	if (!hooked)
		return;
	void *volatile p = malloc(64); /* volatile, or the compiler leaves both calls out */
	free(p);
}

static inline int begin(const char *name)
{
	calls[n_calls] = (struct call){name, mono_now(), 0, -cpu_now()};
	return n_calls++;
}
static inline void end(int c)
{
	calls[c].cpu += cpu_now();
	calls[c].to = mono_now();
}

/* Works until a moment, and says how it goes every few tens of microseconds. */
NOINLINE static void spin(int64_t until)
{
	uint64_t x = sink | 1;
	while (mono_now() < until) {
		for (int i = 0; i < 20000; i++)
			x = x * 6364136223846793005u + 1442695040888963407u;
		call_hook();
	}
	sink = x;
}

NOINLINE static void first_step(int64_t ns)
{
	int c = begin("first_step");
	spin(calls[c].from + ns);
	end(c);
}
NOINLINE static void second_step(int64_t ns)
{
	int c = begin("second_step");
	spin(calls[c].from + ns);
	end(c);
}
NOINLINE static void serve(int64_t ns)
{
	int c = begin("serve");
	first_step(ns / 3);
	second_step(ns - ns / 3);
	end(c);
}

int main(int argc, char **argv)
{
	if (argc != 4)
		return 2;
	hooked = !strcmp(argv[1], "hooked");
	int n = atoi(argv[2]);
	FILE *out = truth_open(argc, argv);
	calls = calloc((size_t)n * 3, sizeof *calls);
	memset(calls, 0, (size_t)n * 3 * sizeof *calls); /* no page faults later */
	unsigned x = 5;
	for (int i = 0; i < n; i++) {
		x = x * 1664525u + 1013904223u;
		int64_t ns = 100000;
		for (unsigned k = x >> 16; k >= 6553; k -= 6553) /* 0.1 to 20 ms, as many of each order */
			ns = ns * 17 / 10;
		serve(ns + (int64_t)(x >> 8) % (ns / 2));
		call_hook();
	}
	for (int i = 0; i < n_calls; i++)
		fprintf(out, "call %s %lld %lld %lld\n", calls[i].name, (long long)calls[i].from, (long long)calls[i].to, (long long)calls[i].cpu);
	return fclose(out);
}
