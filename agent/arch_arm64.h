/* arch_arm64.h: what the walks need of arm64: system calls, the cycle counter, the thread pointer. The rest of
 * arch_amd64.h's names, and with them the agent, are not there yet. */
#ifndef HB_ARCH_H
#define HB_ARCH_H

#include <stdint.h>

#define HB_ELF_MACHINE 183 /* EM_AARCH64 */
#define HB_VA_BITS 48
#define HB_VDSO_CLOCK "__kernel_clock_gettime"
#define HB_HAVE_CYCLES 1

/* system call numbers, include/uapi/asm-generic/unistd.h */
enum {
  HB_SYS_close = 57, HB_SYS_read = 63, HB_SYS_write = 64, HB_SYS_exit_group = 94, HB_SYS_futex = 98, HB_SYS_clock_gettime = 113,
  HB_SYS_sigaltstack = 132, HB_SYS_rt_sigaction = 134, HB_SYS_rt_sigprocmask = 135, HB_SYS_rt_sigtimedwait = 137,
  HB_SYS_prctl = 167, HB_SYS_getpid = 172, HB_SYS_getppid = 173, HB_SYS_gettid = 178, HB_SYS_munmap = 215, HB_SYS_mmap = 222,
  HB_SYS_madvise = 233,
};

/* A system call without libc: errno is not touched; failure is -errno in the result. signal-safe */
static inline long hb_sys6(long n, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = n;
  register long x0 __asm__("x0") = a;
  register long x1 __asm__("x1") = b;
  register long x2 __asm__("x2") = c;
  register long x3 __asm__("x3") = d;
  register long x4 __asm__("x4") = e;
  register long x5 __asm__("x5") = f;
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}

/* The virtual counter: constant rate, the same on all CPUs. signal-safe */
static inline uint64_t hb_cycles(void) {
  uint64_t v;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
  return v;
}

/* signal-safe */
static inline uintptr_t hb_thread_pointer(void) {
  uintptr_t tp;
  __asm__("mrs %0, tpidr_el0" : "=r"(tp));
  return tp;
}

#endif
