/* plugin: the object that dlloop loads and unloads: a constructor that allocates, thread-local data, a call. */
#include <stdlib.h>
#include <unistd.h>

static void *mine;
static __thread int calls;

__attribute__((constructor)) static void begin(void) { mine = malloc(3000); }
__attribute__((destructor)) static void end(void) {
  free(mine);
  mine = NULL;
}

__attribute__((visibility("default"))) int plugin_call(int x) {
  void *p = malloc(100);
  usleep(50);
  free(p);
  calls++;
  return mine && calls > 0 ? x * 3 : -1;
}
