/* Allocations of known number and size: alloc MEGABYTES TRUTH-FILE. A line per function: objects, bytes, and what of them is
 * still in use at the end. Half of what is freed is freed by another thread. The addresses of all that is still in use go to TRUTH-FILE.kept, 8
 * bytes each. */
#include "truth.h"

struct count {
	const char *name;
	uint64_t objects, bytes, live_objects, live_bytes;
};
static struct count counts[3];
enum { QUEUE = 1 << 12 };
static void *queue[QUEUE];
static unsigned head, tail;
static int done;
static void *kept[1 << 20];
static size_t kept_number;

static void *freer(void *arg)
{
	(void)arg;
	for (;;) {
		int last = __atomic_load_n(&done, __ATOMIC_ACQUIRE);
		while (tail != __atomic_load_n(&head, __ATOMIC_ACQUIRE)) {
			free(queue[tail % QUEUE]);
			__atomic_store_n(&tail, tail + 1, __ATOMIC_RELEASE);
		}
		if (last)
			return 0;
	}
}

static void dispose(struct count *c, void *p, size_t n, unsigned x)
{
	c->objects++;
	c->bytes += n;
	switch (x % 8) {
	case 0: /* kept */
		c->live_objects++;
		c->live_bytes += n;
		if (kept_number == sizeof kept / sizeof *kept)
			abort();
		kept[kept_number++] = p;
		break;
	case 1: case 2: case 3: case 4:
		if (head - __atomic_load_n(&tail, __ATOMIC_ACQUIRE) < QUEUE) {
			queue[head % QUEUE] = p;
			__atomic_store_n(&head, head + 1, __ATOMIC_RELEASE);
			break;
		}
		/* fall through */
	default:
		free(p);
	}
}

static void *check(void *p)
{
	if (!p)
		abort();
	*(volatile char *)p = 1;
	return p;
}

NOINLINE static void small_objects(uint64_t bytes)
{
	for (unsigned x = 1; counts[0].bytes < bytes;) {
		x = x * 1664525u + 1013904223u;
		size_t n = 16 + (x >> 26);
		dispose(&counts[0], check(malloc(n)), n, x >> 8);
	}
}
NOINLINE static void large_objects(uint64_t bytes)
{
	for (unsigned x = 2; counts[1].bytes < bytes;) {
		x = x * 1664525u + 1013904223u;
		size_t n = 4096 + (x >> 14);
		dispose(&counts[1], check(calloc(1, n)), n, x >> 8);
	}
}
NOINLINE static void mixed_objects(uint64_t bytes)
{
	for (unsigned x = 3; counts[2].bytes < bytes;) {
		x = x * 1664525u + 1013904223u;
		size_t n = x >> 31 ? 100000 : 100;
		dispose(&counts[2], check(malloc(n)), n, x >> 8);
	}
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	uint64_t bytes = (uint64_t)atoll(argv[1]) << 20;
	FILE *out = truth_open(argc, argv);
	counts[0].name = "small_objects", counts[1].name = "large_objects", counts[2].name = "mixed_objects";
	pthread_t id;
	pthread_create(&id, 0, freer, 0);
	small_objects(bytes / 8);
	large_objects(bytes);
	mixed_objects(bytes);
	__atomic_store_n(&done, 1, __ATOMIC_RELEASE);
	pthread_join(id, 0);
	for (int i = 0; i < 3; i++)
		fprintf(out, "alloc %s %llu %llu %llu %llu\n", counts[i].name, (unsigned long long)counts[i].objects,
			(unsigned long long)counts[i].bytes, (unsigned long long)counts[i].live_objects, (unsigned long long)counts[i].live_bytes);
	char path[4096];
	snprintf(path, sizeof path, "%s.kept", argv[argc - 1]);
	FILE *addresses = fopen(path, "w");
	if (!addresses || fwrite(kept, sizeof *kept, kept_number, addresses) != kept_number || fclose(addresses))
		return 1;
	return fclose(out);
}
