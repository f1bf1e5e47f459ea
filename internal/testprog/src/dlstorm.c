/* dlstorm: four threads load and unload copies of the plugin in argv[1], each copy a module of its own, while two more
 * burn CPU, allocate and take locks; a library is also loaded into a name space of its own. */
#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { LOADERS = 4, ROUNDS = 60 };

static char *image;
static size_t image_size;
static const char *path;
static volatile int stop;

static void read_image(void) {
  int fd = open(path, O_RDONLY);
  struct stat st;
  CHECK(fd >= 0 && fstat(fd, &st) == 0);
  image_size = (size_t)st.st_size;
  image = malloc(image_size);
  CHECK(read(fd, image, image_size) == (ssize_t)image_size);
  close(fd);
}

static void *loader(void *arg) {
  for (int i = 0; i < ROUNDS; i++) {
    int fd = memfd_create("plugin", 0);
    CHECK(fd >= 0 && write(fd, image, image_size) == (ssize_t)image_size);
    char name[64];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    void *h = dlopen(name, (i & 1 ? RTLD_NOW : RTLD_LAZY) | (i & 2 ? RTLD_GLOBAL : RTLD_LOCAL));
    CHECK(h);
    int (*call)(int) = (int (*)(int))(intptr_t)dlsym(h, "plugin_call");
    CHECK(call && call(i) == 3 * i);
    CHECK(dlopen("/nonexistent.so", RTLD_NOW) == NULL && dlerror() != NULL);
    CHECK(dlclose(h) == 0);
    close(fd);
  }
  return arg;
}

static void *worker(void *arg) {
  static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
  while (!stop) {
    burn_ns(200000);
    pthread_mutex_lock(&m);
    free(malloc(5000));
    pthread_mutex_unlock(&m);
  }
  return arg;
}

int main(int argc, char **argv) {
  CHECK(argc == 2);
  path = argv[1];
  read_image();
  pthread_t t[LOADERS], w[2];
  for (int i = 0; i < 2; i++)
    CHECK_RC(pthread_create(&w[i], NULL, worker, NULL), 0);
  for (int i = 0; i < LOADERS; i++)
    CHECK_RC(pthread_create(&t[i], NULL, loader, NULL), 0);
  for (int i = 0; i < LOADERS; i++)
    CHECK_RC(pthread_join(t[i], NULL), 0);
  stop = 1;
  for (int i = 0; i < 2; i++)
    CHECK_RC(pthread_join(w[i], NULL), 0);
  void *other = dlmopen(LM_ID_NEWLM, path, RTLD_NOW);
  CHECK(other);
  int (*call)(int) = (int (*)(int))(intptr_t)dlsym(other, "plugin_call");
  CHECK(call && call(14) == 42);
  CHECK(dlclose(other) == 0);
  free(image);
  puts("dlstorm ok");
  return 0;
}
