/* demo: a small shop, to be looked at with hbtrace. What a trace of it should tell, and nothing else happens:
 *
 *   chef-0, chef-1   CPU work in plate_order: two parts in knead_dough, one part in chop_vegetables, the same loop
 *                    with twice the rounds; every order also allocates and frees (fill_pantry)
 *   cache-refresher  every 60 ms refresh_cache holds cache_lock across store_menu_on_disk, 5 to 40 ms (an fsync,
 *                    then a sleep that makes up the rest): whoever looks up a price waits for it
 *   waiter-0..3      look_up_price under cache_lock, then put_order on the queue and signal the chefs
 *   chefs            sleep in take_order (condition variable) when the queue is empty
 *   accountant       writes the ledger and fsyncs it (write_ledger), slowly, holding nothing
 *
 * Runs about argv[1] seconds (3), prints one line of results.
 * Build: gcc -O2 -g -fno-omit-frame-pointer -pthread -o demo demo.c
 */
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-optimize-sibling-calls") /* a call turned into a jump hides the function that made it */
#endif
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline))
enum { CHEFS = 2, WAITERS = 4, QUEUE = 64, MENU = 200, MS = 1000000 };

struct order {
  uint32_t dish;
  uint32_t cents;
};

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t menu_cents[MENU];
static unsigned menu_version;

static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t order_waiting = PTHREAD_COND_INITIALIZER;
static pthread_cond_t room_for_orders = PTHREAD_COND_INITIALIZER;
static struct order queue[QUEUE];
static unsigned queued, taken;
static int closed;

static unsigned long dishes_served, cents_earned, ledger_pages, orders_refused;
static _Thread_local volatile uint64_t flavour; /* keeps the work from being optimised away */
static int64_t closing_time_ns;

static int64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* A macro, so that the function that sleeps is the one that the trace names. */
#define SLEEP_NS(ns) nanosleep(&(struct timespec){(ns) / 1000000000, (ns) % 1000000000}, NULL)

static int open_for_business(void) { return now_ns() < closing_time_ns; }

static int temporary_file(void) {
  char path[] = "/tmp/hbtrace-demo-XXXXXX";
  int fd = mkstemp(path);
  if (fd < 0) {
    perror("demo: creating a temporary file in /tmp");
    exit(1);
  }
  unlink(path);
  return fd;
}

/* Keeps kneading and chopping from being leaf functions: gcc gives those no frame pointer, and whoever called them
 * would be missing from every sample. */
NOINLINE static void taste(uint64_t x) { flavour += x; }

/* Twice the rounds of chop_vegetables, so twice its share of the CPU. The loops are spelled out in both: the work
 * is to be seen where it is done, not in something that both call. */
NOINLINE static void knead_dough(uint32_t dish) {
  uint64_t x = dish + 1;
  for (int portion = 0; portion < 6; portion++) {
    for (int i = 0; i < 100000; i++) {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
    }
    taste(x);
  }
}

NOINLINE static void chop_vegetables(uint32_t dish) {
  uint64_t x = dish + 2;
  for (int portion = 0; portion < 3; portion++) {
    for (int i = 0; i < 100000; i++) {
      x ^= x << 13;
      x ^= x >> 7;
      x ^= x << 17;
    }
    taste(x);
  }
}

NOINLINE static void fill_pantry(uint32_t dish) {
  char *shelf[40];
  for (int i = 0; i < 40; i++) {
    size_t bytes = 256 + 64 * (size_t)((dish + (uint32_t)i) % 50);
    shelf[i] = malloc(bytes);
    if (!shelf[i])
      abort();
    memset(shelf[i], (int)dish, bytes);
  }
  for (int i = 0; i < 40; i++) {
    flavour += (unsigned char)shelf[i][1];
    free(shelf[i]);
  }
}

NOINLINE static void plate_order(const struct order *o) {
  fill_pantry(o->dish);
  knead_dough(o->dish);
  chop_vegetables(o->dish);
}

NOINLINE static int take_order(struct order *o) {
  pthread_mutex_lock(&queue_lock);
  while (queued == taken && !closed)
    pthread_cond_wait(&order_waiting, &queue_lock);
  int got = queued != taken;
  if (got) {
    *o = queue[taken++ % QUEUE];
    pthread_cond_signal(&room_for_orders);
  }
  pthread_mutex_unlock(&queue_lock);
  return got;
}

NOINLINE static void put_order(struct order o) {
  pthread_mutex_lock(&queue_lock);
  while (queued - taken == QUEUE)
    pthread_cond_wait(&room_for_orders, &queue_lock);
  queue[queued++ % QUEUE] = o;
  pthread_cond_signal(&order_waiting);
  pthread_mutex_unlock(&queue_lock);
}

NOINLINE static uint32_t look_up_price(uint32_t dish) {
  pthread_mutex_lock(&cache_lock);
  uint32_t cents = menu_cents[dish];
  pthread_mutex_unlock(&cache_lock);
  return cents;
}

NOINLINE static void store_menu_on_disk(int fd, int64_t ns) {
  int64_t until = now_ns() + ns;
  if (pwrite(fd, menu_cents, sizeof menu_cents, 0) != (ssize_t)sizeof menu_cents || fsync(fd) != 0)
    orders_refused++;
  int64_t rest = until - now_ns();
  if (rest > 0)
    SLEEP_NS(rest);
}

/* The fault to be found: slow input and output under a lock that everybody needs. */
NOINLINE static void refresh_cache(int fd) {
  pthread_mutex_lock(&cache_lock);
  menu_version++;
  for (int i = 0; i < MENU; i++)
    menu_cents[i] = 500 + (uint32_t)i * 7 + menu_version % 10;
  store_menu_on_disk(fd, (5 + menu_version * 7 % 36) * MS);
  pthread_mutex_unlock(&cache_lock);
}

NOINLINE static void write_ledger(int fd, unsigned page) {
  char line[512];
  memset(line, 'a' + (int)(page % 26), sizeof line);
  if (write(fd, line, sizeof line) == (ssize_t)sizeof line && fsync(fd) == 0)
    ledger_pages++;
}

NOINLINE static void walk_to_next_table(void) { SLEEP_NS(12 * MS); }
NOINLINE static void wait_for_next_menu(void) { SLEEP_NS(60 * MS); }
NOINLINE static void count_the_till(void) { SLEEP_NS(25 * MS); }

static void *chef(void *arg) {
  (void)arg;
  struct order o;
  while (take_order(&o)) {
    plate_order(&o);
    __atomic_add_fetch(&dishes_served, 1, __ATOMIC_RELAXED);
    __atomic_add_fetch(&cents_earned, o.cents, __ATOMIC_RELAXED);
  }
  return NULL;
}

static void *waiter(void *arg) {
  uint32_t dish = (uint32_t)(intptr_t)arg * 31;
  while (open_for_business()) {
    dish = (dish * 1103515245 + 12345) % MENU;
    put_order((struct order){dish, look_up_price(dish)});
    walk_to_next_table();
  }
  return NULL;
}

static void *cache_refresher(void *arg) {
  (void)arg;
  int fd = temporary_file();
  while (open_for_business()) {
    refresh_cache(fd);
    wait_for_next_menu();
  }
  close(fd);
  return NULL;
}

static void *accountant(void *arg) {
  (void)arg;
  int fd = temporary_file();
  for (unsigned page = 0; open_for_business(); page++) {
    write_ledger(fd, page);
    count_the_till();
  }
  close(fd);
  return NULL;
}

static pthread_t hire(void *(*job)(void *), intptr_t number, const char *name) {
  pthread_t t;
  int rc = pthread_create(&t, NULL, job, (void *)number);
  if (rc != 0) {
    fprintf(stderr, "demo: starting thread %s: %s\n", name, strerror(rc));
    exit(1);
  }
  pthread_setname_np(t, name);
  return t;
}

int main(int argc, char **argv) {
  double seconds = argc > 1 ? atof(argv[1]) : 3;
  if (seconds <= 0 || seconds > 3600) {
    fprintf(stderr, "usage: %s [seconds]\n", argv[0]);
    return 2;
  }
  closing_time_ns = now_ns() + (int64_t)(seconds * 1e9);
  pthread_t chefs[CHEFS], others[WAITERS + 2];
  char name[16];
  int n = 0;
  for (int i = 0; i < CHEFS; i++) {
    snprintf(name, sizeof name, "chef-%d", i);
    chefs[i] = hire(chef, i, name);
  }
  others[n++] = hire(cache_refresher, 0, "cache-refresher");
  others[n++] = hire(accountant, 0, "accountant");
  for (int i = 0; i < WAITERS; i++) {
    snprintf(name, sizeof name, "waiter-%d", i);
    others[n++] = hire(waiter, i, name);
  }
  for (int i = 0; i < n; i++)
    pthread_join(others[i], NULL);
  pthread_mutex_lock(&queue_lock);
  closed = 1;
  pthread_cond_broadcast(&order_waiting);
  pthread_mutex_unlock(&queue_lock);
  for (int i = 0; i < CHEFS; i++)
    pthread_join(chefs[i], NULL);
  printf("served %lu dishes for %lu.%02lu, %u menus, %lu pages of ledger\n", dishes_served, cents_earned / 100,
         cents_earned % 100, menu_version, ledger_pages);
  return orders_refused != 0;
}
