/* table_amd64.h: what table.h must know of x86-64: where registers lie in the kernel's signal frame, and how code
 * looks where no table describes it. Another architecture is another file with the same names. */
#ifndef HB_TABLE_ARCH_H
#define HB_TABLE_ARCH_H

#include "agent/os.h"

#define HB_SP_COLUMN 7 /* DWARF register numbers, psABI figure 3.36 */
#define HB_FP_COLUMN 6
#define HB_RED_ZONE 128 /* bytes below SP that belong to the running function */

/* The kernel's struct ucontext lies at SP in a signal restorer: flags, link, stack (sp, flags, size), then the
 * register file of struct sigcontext: r8…r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip. */
#define HB_UC_AT 0
#define HB_UC_FILE 40
#define HB_UC_BYTES (HB_UC_FILE + 17 * 8)
#define HB_FILE_COLUMNS 16
#define HB_RA_SAVED 0 /* calls leave the return address at CFA - 8 */
enum { HB_FILE_BP = 10, HB_FILE_SP = 15, HB_FILE_PC = 16 };

/* Index into that register file by DWARF number: rax rdx rcx rbx rsi rdi rbp rsp r8…r15. signal-safe */
HB_INLINE uint32_t hb_file_index(uint32_t column) {
  static const uint8_t map[16] = {13, 12, 14, 11, 9, 8, 10, 15, 0, 1, 2, 3, 4, 5, 6, 7};
  return map[column & 15];
}

/* Can these 8 bytes be read? rt_sigprocmask reads its set before it finds that the operation makes no sense, and
 * every program that records is allowed it. (A null pointer it does not read.) signal-safe; about 100 ns */
static int hb_readable8(uintptr_t p) {
  return p && hb_sys4(HB_SYS_rt_sigprocmask, 12345, p, 0, 8) != -14; /* EFAULT */
}

/* Copy n bytes (a multiple of 8) of code, 0 when they cannot be read. Null and near it is not asked. signal-safe */
static int hb_read_code(uint8_t *to, uintptr_t from, uint32_t n) {
  if (from < 0x10000 || from >> 47) return 0;
  for (uint32_t i = 0; i < n; i += 8)
    if (!hb_readable8(from + i)) return 0;
  for (uint32_t i = 0; i < n; i++) to[i] = ((const volatile uint8_t *)from)[i];
  return 1;
}

/* Does a call instruction end at `ra`? E8 rel32, or FF /2 with any operand. signal-safe */
static int hb_after_call(uintptr_t ra) {
  uint8_t b[8];
  if (!hb_read_code(b, ra - 8, 8)) return 0;
  if (b[3] == 0xe8) return 1;
  for (uint32_t len = 2; len <= 7; len++) {
    const uint8_t *i = b + 8 - len;
    if (i[0] != 0xff || (i[1] & 0x38) != 0x10) continue;
    uint32_t mod = i[1] >> 6, rm = i[1] & 7, want = 2;
    if (mod != 3) {
      uint32_t sib = rm == 4, base = sib ? i[2] & 7u : rm;
      want += sib;
      if (mod == 1) want += 1;
      if (mod == 2 || (mod == 0 && base == 5)) want += 4;
    }
    if (want == len) return 1;
  }
  return 0;
}

/* A signal restorer without call frame information (musl, Go, ours): mov $15,%rax (or %eax); syscall. signal-safe */
static int hb_restorer_at(uintptr_t pc) {
  uint8_t b[16];
  if (!hb_read_code(b, pc, 8)) return 0;
  if (b[0] == 0xb8 && b[1] == 15 && !b[2] && !b[3] && !b[4]) return b[5] == 0x0f && b[6] == 0x05;
  if (b[0] != 0x48 || b[1] != 0xc7 || b[2] != 0xc0 || b[3] != 15 || b[4] || b[5] || b[6] || b[7] != 0x0f) return 0;
  return hb_read_code(b, pc + 8, 8) && b[0] == 0x05;
}

/* Where the return address lies, in words above SP, as the instruction about to run at `pc` tells: at a function's
 * first instruction and at its ret 0, behind the push of the frame pointer 1. -1: it does not tell. A frame
 * set up within the next bytes (an entry stub before it) means that nothing was pushed yet. signal-safe */
static int hb_sniff(uintptr_t pc) {
  uint8_t b[48];
  uint32_t n = 8;
  if (!hb_read_code(b, pc, 8)) return -1;
  if (b[0] == 0xf3 && b[1] == 0x0f && b[2] == 0x1e && b[3] == 0xfa) return 0; /* endbr64 */
  if (b[0] == 0x55 || b[0] == 0xc3 || b[0] == 0xc2) return 0;
  if (b[0] == 0x48 && ((b[1] == 0x89 && b[2] == 0xe5) || (b[1] == 0x8b && b[2] == 0xec))) return 1;
  if (hb_read_code(b, pc, sizeof b)) n = sizeof b;
  for (uint32_t i = 1; i + 4 <= n && i < 40; i++) {
    if (b[i] == 0xc3 || b[i] == 0xc9) break; /* the end of a body, not the way to one */
    if (b[i] == 0x55 && b[i + 1] == 0x48 &&
        ((b[i + 2] == 0x89 && b[i + 3] == 0xe5) || (b[i + 2] == 0x8b && b[i + 3] == 0xec)))
      return 0;
  }
  return -1;
}

#endif
