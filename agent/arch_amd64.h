/* arch_amd64.h: everything that is x86-64 in the agent: system calls, the cycle counter, registers at a
 * signal, the signal return trampoline. Another architecture is another file with the same names. */
#ifndef HB_ARCH_H
#define HB_ARCH_H

#include <stdint.h>

#define HB_ELF_MACHINE 62 /* EM_X86_64 */
#define HB_VA_BITS 47 /* of a program's addresses */
#define HB_VDSO_CLOCK "__vdso_clock_gettime"
#define HB_HAVE_CYCLES 1
#define HB_EPOLL_PACKED __attribute__((packed)) /* struct epoll_event, as in 32-bit programs */

/* system call numbers, arch/x86/entry/syscalls/syscall_64.tbl */
enum {
  HB_SYS_read = 0, HB_SYS_write = 1, HB_SYS_open = 2, HB_SYS_close = 3, HB_SYS_fstat = 5, HB_SYS_mmap = 9, HB_SYS_munmap = 11,
  HB_SYS_rt_sigaction = 13, HB_SYS_rt_sigprocmask = 14, HB_SYS_sched_yield = 24, HB_SYS_madvise = 28, HB_SYS_getpid = 39, HB_SYS_getuid = 102, HB_SYS_geteuid = 107,
  HB_SYS_socket = 41, HB_SYS_connect = 42, HB_SYS_sendto = 44, HB_SYS_recvmsg = 47, HB_SYS_getsockname = 51, HB_SYS_getpeername = 52, HB_SYS_setsockopt = 54, HB_SYS_getsockopt = 55,
  HB_SYS_execve = 59, HB_SYS_kill = 62, HB_SYS_fcntl = 72,
  HB_SYS_readlink = 89, HB_SYS_getrusage = 98, HB_SYS_getppid = 110, HB_SYS_rt_sigtimedwait = 128, HB_SYS_rt_sigqueueinfo = 129,
  HB_SYS_sigaltstack = 131, HB_SYS_prctl = 157,
  HB_SYS_gettid = 186, HB_SYS_futex = 202, HB_SYS_io_getevents = 208, HB_SYS_clock_gettime = 228, HB_SYS_exit_group = 231,
  HB_SYS_rt_tgsigqueueinfo = 297,
  HB_SYS_prlimit64 = 302, HB_SYS_seccomp = 317, HB_SYS_execveat = 322, HB_SYS_io_uring_enter = 426,
};

/* A system call without libc, whether or not the target has confined itself: errno is not touched; failure is -errno in the
 * result. signal-safe */
static inline long hb_raw6(long n, long a, long b, long c, long d, long e, long f) {
  long r;
  register long r10 __asm__("r10") = d;
  register long r8 __asm__("r8") = e;
  register long r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return r;
}

/* Raw cycle counter: unordered, constant rate where the collector says so (header.cycles_mult != 0). signal-safe */
static inline uint64_t hb_cycles(void) {
  uint32_t lo, hi;
  __asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
  return (uint64_t)hi << 32 | lo;
}

/* Address of the thread control block: in glibc and musl it equals pthread_self() and lies at the upper end
 * of the stack that the library made for the thread. signal-safe */
static inline uintptr_t hb_thread_pointer(void) {
  uintptr_t tp;
  __asm__("mov %%fs:0,%0" : "=r"(tp));
  return tp;
}

/* Where a wrapper was called from: its frame's address. There lie the caller's frame pointer and the return address, and above
 * them, at the CFA, the caller's stack. Naming it forces a frame pointer. */
#define HB_FRAME __builtin_frame_address(0)
static inline uintptr_t hb_frame_cfa(const void *frame) { return (uintptr_t)frame + 16; }

struct hb_outer { /* such a frame, to be compared with others: deeper ones lie lower */
  uintptr_t sp;
};
static inline struct hb_outer hb_outer_at(const void *frame) { return (struct hb_outer){(uintptr_t)frame}; }
static inline const void *hb_outer_frame(struct hb_outer o) { return (const void *)o.sp; }

static inline uintptr_t hb_strip(uintptr_t ra) { return ra; } /* nothing signs return addresses */

/* pthread_self() of glibc and musl. signal-safe */
#define hb_pthread_self() ((uint64_t)hb_thread_pointer())

static inline long hb_sys6(long n, long a, long b, long c, long d, long e, long f); /* agent/os.h */
static inline long hb_open(const char *path, long flags) { return hb_sys6(HB_SYS_open, (long)path, flags, 0, 0, 0, 0); }
static inline long hb_readlink(const char *path, void *to, unsigned long n) {
  return hb_sys6(HB_SYS_readlink, (long)path, (long)to, (long)n, 0, 0, 0);
}

struct hb_stat { /* of struct stat, what is looked at */
  uint64_t dev, ino, nlink;
  uint32_t mode, uid;
  uint32_t rest[28];
};
_Static_assert(sizeof(struct hb_stat) == 144, "the kernel's struct stat");

/* Was it interrupted where a system call returns, before its next instruction? The call leaves the address there in rcx, and its flags
 * in r11 (Intel SDM, SYSCALL); elsewhere rcx never is what rip is. */
static inline int hb_ucontext_after_syscall(const void *uc) {
  const uint64_t *g = (const uint64_t *)((const char *)uc + 40);
  return g[14] == g[16];
}

/* Did the signal end the system call there, with EINTR? signal-safe */
static inline int hb_ucontext_interrupted(const void *uc) {
  return hb_ucontext_after_syscall(uc) && (int64_t)((const uint64_t *)((const char *)uc + 40))[13] == -4;
}

/* The stack pointer there: uc_mcontext.gregs[REG_RSP]. */
static inline uintptr_t hb_ucontext_pc(const void *uc) { return ((const uint64_t *)((const char *)uc + 40))[16]; }
static inline uint64_t *hb_ucontext_sp(void *uc) { return (uint64_t *)((char *)uc + 40) + 15; }
#define HB_UCONTEXT_BYTES 304 /* up to its mask */

#define HB_MIN_SIGNAL_STACK 4096 /* where the kernel does not say how much its frame needs (AT_MINSIGSTKSZ) */

/* The stack pointer that a jmp_buf goes to, glibc's and musl's: the seventh word. glibc hides it (PTR_MANGLE,
 * sysdeps/unix/sysv/linux/x86_64/pointer_guard.h). signal-safe */
#define HB_JUMP_SP 6
static inline uintptr_t hb_jump_demangle(uint64_t word) {
  uint64_t guard;
  __asm__("mov %%fs:0x30,%0" : "=r"(guard));
  return (word >> 17 | word << 47) ^ guard;
}

/* The signals that are blocked when the handler returns: uc_sigmask of the kernel's struct ucontext. */
static inline uint64_t *hb_ucontext_mask(void *uc) { return (uint64_t *)((char *)uc + 296); }

/* The CPU that this runs on; UINT32_MAX when it cannot be told. The kernel keeps it in the limit of a segment (__CPUNODE_SEG,
 * arch/x86/include/asm/segment.h), from where its vDSO reads it. signal-safe; 10 ns */
static inline uint32_t hb_cpu(void) {
  uint64_t node_and_cpu = UINT32_MAX - 1;
  __asm__ volatile("lsl %1,%0" : "+r"(node_and_cpu) : "r"(0x7bul) : "cc");
  return node_and_cpu == UINT32_MAX - 1 ? UINT32_MAX : (uint32_t)node_and_cpu & 0xfff;
}

/* The kernel wants a restorer on x86-64. These are the bytes that unwinders recognise as a signal frame
 * (libgcc's and gdb's fall-back compare them); a caller's address minus one must stay inside, hence the nop. */
__asm__(".text\n.p2align 4\n.byte 0x90\n.globl hb_restorer\n.hidden hb_restorer\n.type hb_restorer,@function\n"
        "hb_restorer:\n\tmovq $15,%rax\n\tsyscall\n.size hb_restorer,.-hb_restorer\n");
extern void hb_restorer(void);
#define HB_SA_RESTORER 0x04000000ul

/* A hook that an exception or a cancellation may cross names our personality routine, so that state which we
 * published is taken back (sampler and slot would otherwise believe the thread blocked for ever). */
#define HB_UNWIND_SCOPE __asm__ volatile(".cfi_personality 0x1b, hb_personality")

/* Functions with several glibc versions on this architecture are exported under the one that programs are linked
 * against; an unversioned export would also capture references to the old ones, whose objects are laid out
 * differently. */
#define HB_VERSIONED(symbol) hb_versioned_##symbol
#define HB_SYMVER(symbol, version) __asm__(".symver hb_versioned_" #symbol "," #symbol "@@@" version)
HB_SYMVER(pthread_cond_wait, "GLIBC_2.3.2");
HB_SYMVER(pthread_cond_timedwait, "GLIBC_2.3.2");
HB_SYMVER(pthread_cond_signal, "GLIBC_2.3.2");
HB_SYMVER(pthread_cond_broadcast, "GLIBC_2.3.2");
HB_SYMVER(posix_spawn, "GLIBC_2.15");
HB_SYMVER(posix_spawnp, "GLIBC_2.15");

/* System calls that can sleep, and the hook that each is recorded as when a program makes it by syscall(2). */
#define HB_SLEEPING_SYSCALLS(X)                                                                                       \
  X(0, read) X(1, write) X(7, poll) X(17, pread64) X(18, pwrite64) X(19, readv) X(20, writev) X(23, select)           \
  X(34, pause) X(35, nanosleep) X(42, connect) X(43, accept) X(44, sendto) X(45, recvfrom) X(46, sendmsg)             \
  X(47, recvmsg) X(61, wait4) X(73, flock) X(74, fsync) X(75, fdatasync) X(128, sigtimedwait) X(130, sigsuspend)      \
  X(208, io_getevents) X(230, clock_nanosleep) X(232, epoll_wait) X(247, waitid) X(270, pselect) X(271, ppoll)        \
  X(275, splice) X(281, epoll_pwait) X(288, accept4) X(295, preadv) X(296, pwritev) X(299, recvmmsg) X(307, sendmmsg) \
  X(318, getrandom) X(327, preadv2) X(328, pwritev2) X(426, io_uring_enter) X(441, epoll_pwait2) X(449, futex_wait)

#endif
