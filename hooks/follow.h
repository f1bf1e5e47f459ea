/* follow.h: programs without a loader (static Go programs), in which no agent works. Whoever is about to exec such a file asks the
 * recorder first, which takes hold of the process if it can record the program (collector/follow.go), and answers at once.
 * A file with a loader costs open, read and close. */
#ifndef HB_FOLLOW_H
#define HB_FOLLOW_H

#include "agent/session.h"
#include "hooks/wait.h"

extern char **environ __attribute__((weak));

enum { HB_FOLLOW_HEAD = 1024, HB_FOLLOW_PATH = 512 };

#if defined(__x86_64__)

/* Is it an ELF file that names no loader, by its first bytes? */
static int hb_loads_itself(const unsigned char *head, long n) {
  const Elf64_Ehdr *e = (const Elf64_Ehdr *)(const void *)head;
  if (n < (long)sizeof *e || head[0] != 0x7f || head[1] != 'E' || head[2] != 'L' || head[3] != 'F' || head[EI_CLASS] != ELFCLASS64) return 0;
  if (e->e_phentsize != sizeof(Elf64_Phdr) || (e->e_phoff & 7) || e->e_phoff > (uint64_t)n) return 0;
  const Elf64_Phdr *p = (const Elf64_Phdr *)(const void *)(head + e->e_phoff);
  if (e->e_phnum > ((uint64_t)n - e->e_phoff) / sizeof *p) return 0;
  for (uint32_t i = 0; i < e->e_phnum; i++)
    if (p[i].p_type == PT_INTERP) return 0;
  return e->e_phnum > 0;
}

/* Ask for the exec of the file at path. Returns a socket for hb_unfollow, or -1. Only where this is the process's first thread: that of
 * a process with one, or of a fork or vfork child. hook path, also in vfork children */
static long hb_follow(const char *path) {
  __attribute__((aligned(8))) unsigned char head[HB_FOLLOW_HEAD];
  struct hb_hello hello;
  int none[2];
  if (!path || !hb_session_kept.name_bytes || hb.confined || !hb.header || !hb_load_relaxed(&hb.header->recording)) return -1;
  if (hb_sys1(HB_SYS_gettid, 0) != hb_sys1(HB_SYS_getpid, 0)) return -1;
  long fd = hb_open(path, 02000000 | 04000 /* O_CLOEXEC, O_NONBLOCK */), s = -1;
  if (hb_is_err(fd)) return -1;
  if (hb_loads_itself(head, hb_sys3(HB_SYS_read, fd, head, sizeof head)))
    s = hb_ask_session(&hb_session_kept, (uint32_t)fd + 1, &hello, none);
  hb_sys1(HB_SYS_close, fd);
  return s;
}

/* After an exec that failed: the recorder lets go before this returns, or is gone. */
static void hb_unfollow(long s) {
  if (s < 0) return;
  struct hb_timespec limit = {HB_HELLO_TIMEOUT_MS / 1000, 0};
  char byte = 1;
  hb_sys6(HB_SYS_setsockopt, s, HB_SOL_SOCKET, HB_SO_RCVTIMEO, (long)&limit, sizeof limit, 0);
  if (!hb_is_err(hb_sys6(HB_SYS_sendto, s, (long)&byte, 1, HB_MSG_NOSIGNAL, 0, 0)))
    while (hb_sys3(HB_SYS_read, s, &byte, 1) == -HB_EINTR) {
    }
  hb_sys1(HB_SYS_close, s);
}

#else /* Go programs are recorded on x86-64 only */
static inline long hb_follow(const char *path) { return (void)path, -1; }
static inline void hb_unfollow(long s) { (void)s; }
#endif

/* The same for a name that is looked for in PATH, as the C library does. */
static long hb_follow_found(const char *file) {
  char path[HB_FOLLOW_PATH];
  if (!file) return -1;
  for (const char *c = file; *c; c++)
    if (*c == '/') return hb_follow(file);
  static const char var[] = "PATH=";
  const char *dirs = NULL;
  char *const *env = &environ ? environ : NULL;
  for (; env && *env && !dirs; env++) {
    size_t i = 0;
    while (i < sizeof var - 1 && (*env)[i] == var[i]) i++;
    if (i == sizeof var - 1) dirs = *env + i;
  }
  size_t k = hb_strlen(file);
  while (dirs && *dirs) {
    size_t n = 0;
    while (dirs[n] && dirs[n] != ':') n++;
    if (n && n + k + 2 <= sizeof path) {
      memcpy(path, dirs, n);
      path[n] = '/';
      memcpy(path + n + 1, file, k + 1);
      long fd = hb_open(path, 02000000 | 04000);
      if (!hb_is_err(fd)) {
        hb_sys1(HB_SYS_close, fd);
        return hb_follow(path);
      }
    }
    dirs += n + (dirs[n] ? 1 : 0);
  }
  return -1;
}

#endif
