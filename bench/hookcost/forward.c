//go:build ignore

/* forward: a preload that only forwards, which is the least that any interposition costs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

extern void *__libc_malloc(size_t);
extern void __libc_free(void *);
static void *(*real_malloc)(size_t) = __libc_malloc;
static void (*real_free)(void *) = __libc_free;
static int (*real_lock)(pthread_mutex_t *);
static int (*real_unlock)(pthread_mutex_t *);

__attribute__((constructor)) static void resolve(void) {
  real_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
  real_free = (void (*)(void *))dlsym(RTLD_NEXT, "free");
  real_lock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_lock");
  real_unlock = (int (*)(pthread_mutex_t *))dlsym(RTLD_NEXT, "pthread_mutex_unlock");
}

__attribute__((visibility("default"))) void *malloc(size_t n) { return real_malloc(n); }
__attribute__((visibility("default"))) void free(void *p) { real_free(p); }
__attribute__((visibility("default"))) int pthread_mutex_lock(pthread_mutex_t *m) {
  if (!real_lock) /* before the constructor there is one thread */
    return 0;
  return real_lock(m);
}
__attribute__((visibility("default"))) int pthread_mutex_unlock(pthread_mutex_t *m) {
  if (!real_unlock)
    return 0;
  return real_unlock(m);
}
