/* mixed: a server in small: requests over socket pairs, a worker pool behind a queue, a locked table, allocation,
 * parsing; what an ordinary threaded program does in proportion. */
#include "workload.h"
#include <poll.h>
#include <sys/socket.h>

enum { CLIENTS = 4, WORKERS = 3, BUCKETS = 64 };
static long rounds;
static int sock[CLIENTS][2];
static pthread_mutex_t queue_lock = PTHREAD_MUTEX_INITIALIZER, table_lock[8];
static pthread_cond_t queue_cond = PTHREAD_COND_INITIALIZER;
struct job {
  struct job *next;
  int client;
  char text[100];
};
static struct job *head, **tail = &head;
static int closed;
static char *table[BUCKETS];

NOINLINE static unsigned parse(const char *s) {
  unsigned h = 5381;
  for (int k = 0; k < 40; k++)
    for (const char *p = s; *p; p++)
      h = h * 33 + (unsigned char)*p;
  return h;
}

NOINLINE static void store(unsigned h, const char *s) {
  pthread_mutex_t *m = &table_lock[h % 8];
  pthread_mutex_lock(m);
  free(table[h % BUCKETS]);
  table[h % BUCKETS] = strdup(s);
  pthread_mutex_unlock(m);
}

static void *worker(void *arg) {
  for (;;) {
    pthread_mutex_lock(&queue_lock);
    while (!head && !closed)
      pthread_cond_wait(&queue_cond, &queue_lock);
    struct job *j = head;
    if (j && !(head = j->next))
      tail = &head;
    pthread_mutex_unlock(&queue_lock);
    if (!j)
      return arg;
    unsigned h = parse(j->text);
    store(h, j->text);
    char reply[16] = {0};
    snprintf(reply, sizeof reply, "%08x", h);
    if (write(sock[j->client][1], reply, sizeof reply) != sizeof reply)
      abort();
    free(j);
  }
}

static void *front(void *arg) {
  struct pollfd p[CLIENTS];
  for (int i = 0; i < CLIENTS; i++)
    p[i] = (struct pollfd){.fd = sock[i][1], .events = POLLIN};
  for (int open = CLIENTS; open > 0;) {
    poll(p, CLIENTS, -1);
    for (int i = 0; i < CLIENTS; i++) {
      if (!p[i].revents)
        continue;
      struct job *j = calloc(1, sizeof *j);
      ssize_t n = read(p[i].fd, j->text, sizeof j->text - 1);
      if (n <= 0) {
        p[i].fd = -1;
        open--;
        free(j);
        continue;
      }
      j->client = i;
      pthread_mutex_lock(&queue_lock);
      *tail = j;
      tail = &j->next;
      pthread_cond_signal(&queue_cond);
      pthread_mutex_unlock(&queue_lock);
    }
  }
  return arg;
}

static void *client(void *arg) {
  int me = (int)(intptr_t)arg;
  char reply[16];
  uint64_t sum = 0;
  for (long i = 0; i < rounds; i++) {
    char text[64];
    int n = snprintf(text, sizeof text, "client %d asks for number %ld", me, i * 7919 % 1000);
    if (write(sock[me][0], text, (size_t)n) != n || read(sock[me][0], reply, sizeof reply) != sizeof reply)
      abort();
    sum += (uint64_t)strtoul(reply, NULL, 16);
  }
  shutdown(sock[me][0], SHUT_WR);
  return (void *)(intptr_t)sum;
}

int main(int argc, char **argv) {
  rounds = workload_begin(argc, argv, 12000);
  pthread_t w[WORKERS], c[CLIENTS], f;
  for (int i = 0; i < 8; i++)
    pthread_mutex_init(&table_lock[i], NULL);
  for (int i = 0; i < CLIENTS; i++)
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock[i]))
      return 1;
  for (intptr_t i = 0; i < WORKERS; i++)
    pthread_create(&w[i], NULL, worker, NULL);
  pthread_create(&f, NULL, front, NULL);
  for (intptr_t i = 0; i < CLIENTS; i++)
    pthread_create(&c[i], NULL, client, (void *)i);
  uint64_t sum = 0;
  for (int i = 0; i < CLIENTS; i++) {
    void *r;
    pthread_join(c[i], &r);
    sum += (uint64_t)(intptr_t)r;
  }
  pthread_join(f, NULL);
  pthread_mutex_lock(&queue_lock);
  closed = 1;
  pthread_cond_broadcast(&queue_cond);
  pthread_mutex_unlock(&queue_lock);
  for (int i = 0; i < WORKERS; i++)
    pthread_join(w[i], NULL);
  return workload_end(sum);
}
