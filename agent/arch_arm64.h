/* arch_arm64.h: what arch_amd64.h is for x86-64. Baseline is Armv8.0 and glibc 2.17, the first of this architecture: no function
 * that is wrapped has a second version. */
#ifndef HB_ARCH_H
#define HB_ARCH_H

#include <stddef.h>
#include <stdint.h>

#define HB_ELF_MACHINE 183 /* EM_AARCH64 */
#define HB_VA_BITS 48
#define HB_VDSO_CLOCK "__kernel_clock_gettime"
#define HB_HAVE_CYCLES 1
#define HB_EPOLL_PACKED

/* system call numbers, include/uapi/asm-generic/unistd.h; a test holds them against the system's headers */
enum {
  HB_SYS_io_getevents = 4, HB_SYS_fcntl = 25, HB_SYS_openat = 56, HB_SYS_close = 57, HB_SYS_read = 63, HB_SYS_write = 64, HB_SYS_readlinkat = 78,
  HB_SYS_fstat = 80, HB_SYS_exit_group = 94, HB_SYS_futex = 98, HB_SYS_clock_gettime = 113, HB_SYS_sched_yield = 124,
  HB_SYS_kill = 129, HB_SYS_sigaltstack = 132, HB_SYS_rt_sigaction = 134, HB_SYS_rt_sigprocmask = 135, HB_SYS_rt_sigtimedwait = 137, HB_SYS_rt_sigqueueinfo = 138,
  HB_SYS_getrusage = 165, HB_SYS_prctl = 167, HB_SYS_getpid = 172, HB_SYS_getuid = 174, HB_SYS_geteuid = 175, HB_SYS_getppid = 173, HB_SYS_gettid = 178, HB_SYS_socket = 198,
  HB_SYS_connect = 203, HB_SYS_getsockname = 204, HB_SYS_getpeername = 205, HB_SYS_sendto = 206, HB_SYS_setsockopt = 208, HB_SYS_getsockopt = 209,
  HB_SYS_recvmsg = 212, HB_SYS_munmap = 215, HB_SYS_execve = 221, HB_SYS_mmap = 222, HB_SYS_madvise = 233, HB_SYS_rt_tgsigqueueinfo = 240,
  HB_SYS_prlimit64 = 261, HB_SYS_seccomp = 277, HB_SYS_execveat = 281, HB_SYS_io_uring_enter = 426,
};

/* A system call without libc, whether or not the target has confined itself: errno is not touched; failure is -errno in the
 * result. signal-safe */
static inline long hb_raw6(long n, long a, long b, long c, long d, long e, long f) {
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

/* The calls by a path that this architecture has; -100 is AT_FDCWD. */
static inline long hb_sys6(long n, long a, long b, long c, long d, long e, long f); /* agent/os.h */
static inline long hb_open(const char *path, long flags) { return hb_sys6(HB_SYS_openat, -100, (long)path, flags, 0, 0, 0); }
static inline long hb_readlink(const char *path, void *to, unsigned long n) {
  return hb_sys6(HB_SYS_readlinkat, -100, (long)path, (long)to, (long)n, 0, 0);
}

struct hb_stat { /* of struct stat (asm-generic/stat.h), what is looked at */
  uint64_t dev, ino;
  uint32_t mode, nlink, uid;
  uint32_t rest[25];
};
_Static_assert(sizeof(struct hb_stat) == 128, "the kernel's struct stat");

/* The virtual counter: constant rate, the same on all CPUs; unordered. signal-safe */
static inline uint64_t hb_cycles(void) {
  uint64_t v;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
  return v;
}

/* Nothing in the registers tells that a system call has just returned. */
static inline int hb_ucontext_after_syscall(const void *uc) {
  (void)uc;
  return 0;
}

/* Did the signal end the system call there, with EINTR? By x0 alone: no register tells what was before. signal-safe */
static inline int hb_ucontext_interrupted(const void *uc) { return ((const int64_t *)((const char *)uc + 184))[0] == -4; }

/* The stack pointer there: uc_mcontext.sp. */
static inline uintptr_t hb_ucontext_pc(const void *uc) { return *(const uint64_t *)((const char *)uc + 440); }
static inline uint64_t *hb_ucontext_sp(void *uc) { return (uint64_t *)((char *)uc + 432); }
#define HB_UCONTEXT_BYTES 448 /* up to its pc */

#define HB_MIN_SIGNAL_STACK 8192 /* where the kernel does not say how much its frame needs (AT_MINSIGSTKSZ) */

/* The stack pointer that a jmp_buf goes to, musl's and glibc's: the fourteenth word. glibc hides it by a value that is not
 * to be had from here. */
#define HB_JUMP_SP 13
static inline uintptr_t hb_jump_demangle(uint64_t word) { return word; }

/* The signals that are blocked when the handler returns: uc_sigmask of the kernel's struct ucontext. */
static inline uint64_t *hb_ucontext_mask(void *uc) { return (uint64_t *)((char *)uc + 40); }

/* No register tells the CPU: UINT32_MAX. */
static inline uint32_t hb_cpu(void) { return UINT32_MAX; }

/* Near the upper end of the stack that the library made for the thread. signal-safe */
static inline uintptr_t hb_thread_pointer(void) {
  uintptr_t tp;
  __asm__("mrs %0, tpidr_el0" : "=r"(tp));
  return tp;
}

/* pthread_self(): the control block lies below the thread pointer, at a distance that only the library knows. signal-safe */
#define hb_pthread_self() \
  (HB_LIKELY(hb_real.pthread_self != NULL) ? ((uint64_t(*)(void))hb_real.pthread_self)() : (uint64_t)hb_thread_pointer())

/* Where a wrapper was called from: the caller's frame pointer, the return address, and the CFA, where the caller's stack begins.
 * A frame record {frame pointer, return address} lies at the low end of its frame and does not tell where that ends, so
 * what is pointed to is a copy, in the wrapper's frame, with the CFA beside it. */
struct hb_caller {
  uintptr_t fp, pc, cfa;
};
#define HB_FRAME                                                                                                        \
  ((const void *)&(const struct hb_caller){*(const uintptr_t *)__builtin_frame_address(0), (uintptr_t)__builtin_return_address(0), \
                                           (uintptr_t)__builtin_dwarf_cfa()})
static inline uintptr_t hb_frame_cfa(const void *frame) { return ((const struct hb_caller *)frame)->cfa; }

struct hb_outer { /* such a frame, to be compared with others: deeper ones lie lower */
  uintptr_t sp;
  const void *frame;
};
static inline struct hb_outer hb_outer_at(const void *frame) { return (struct hb_outer){hb_frame_cfa(frame), frame}; }
static inline const void *hb_outer_frame(struct hb_outer o) { return o.frame; }

/* A return address without its signature: bits 55 to 48 are clear in addresses of programs; signatures and tags live in what
 * is above the address. signal-safe */
static inline uintptr_t hb_strip(uintptr_t ra) { return ra & (((uintptr_t)1 << HB_VA_BITS) - 1); }

/* Handlers return through the vDSO: the kernel wants no restorer, and glibc names none. */
#define HB_SA_RESTORER 0ul
#define hb_restorer NULL

/* A hook that an exception or a cancellation may cross names our personality routine, as on x86-64. */
#define HB_UNWIND_SCOPE __asm__ volatile(".cfi_personality 0x1b, hb_personality")

#define HB_VERSIONED(symbol) symbol

/* System calls that can sleep, and the hook that each is recorded as when a program makes it by syscall(2). */
#define HB_SLEEPING_SYSCALLS(X)                                                                                            \
  X(4, io_getevents) X(22, epoll_pwait) X(32, flock) X(63, read) X(64, write) X(65, readv) X(66, writev) X(67, pread64)    \
  X(68, pwrite64) X(69, preadv) X(70, pwritev) X(72, pselect) X(73, ppoll) X(76, splice) X(82, fsync) X(83, fdatasync)     \
  X(95, waitid) X(101, nanosleep) X(115, clock_nanosleep) X(133, sigsuspend) X(137, sigtimedwait) X(202, accept)           \
  X(203, connect) X(206, sendto) X(207, recvfrom) X(211, sendmsg) X(212, recvmsg) X(242, accept4) X(243, recvmmsg)         \
  X(260, wait4) X(269, sendmmsg) X(278, getrandom) X(286, preadv2) X(287, pwritev2) X(426, io_uring_enter)                 \
  X(441, epoll_pwait2) X(449, futex_wait)

#endif
