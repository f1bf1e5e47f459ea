/* dlloop: loads and unloads the plugin in argv[1] many times, also under RTLD_DEEPBIND and from two threads. */
#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

static const char *path;

static void *loop(void *arg) {
  for (int i = 0; i < 150; i++) {
    void *h = dlopen(path, RTLD_NOW | (i % 3 == 0 ? RTLD_DEEPBIND : 0));
    CHECK(h);
    int (*call)(int) = (int (*)(int))(intptr_t)dlsym(h, "plugin_call");
    CHECK(call);
    CHECK(call(i) == 3 * i);
    CHECK(dlsym(h, "no_such_symbol") == NULL);
    CHECK(dlerror() != NULL && dlerror() == NULL);
    burn_ns(300000);
    CHECK(dlclose(h) == 0);
  }
  return arg;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  path = argv[1];
  CHECK(dlopen("/nonexistent/lib.so", RTLD_NOW) == NULL);
  const char *why = dlerror();
  CHECK(why && strstr(why, "/nonexistent/lib.so"));
  pthread_t t;
  CHECK_RC(pthread_create(&t, NULL, loop, NULL), 0);
  loop(NULL);
  CHECK_RC(pthread_join(t, NULL), 0);
  void *self = dlopen(NULL, RTLD_NOW);
  CHECK(self && dlsym(self, "malloc") && dlclose(self) == 0);
  puts("dlloop ok");
  return 0;
}
