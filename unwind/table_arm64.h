/* table_arm64.h: what table.h must know of arm64, as table_amd64.h of x86-64. */
#ifndef HB_TABLE_ARCH_H
#define HB_TABLE_ARCH_H

#include "agent/os.h"

#define HB_SP_COLUMN 31 /* DWARF register numbers, DWARF for the Arm 64-bit Architecture, 4.1 */
#define HB_FP_COLUMN 29
#define HB_RA_COLUMN 30
#define HB_RED_ZONE 0
#define HB_RA_SAVED 1 /* functions save the return address where they like: at CFA + add, or behind the caller's FP */

/* The kernel's struct rt_sigframe lies at SP in a signal restorer: siginfo (128 bytes), then struct ucontext: flags, link,
 * stack (24 bytes), mask (128 with what is reserved), padding to 16, struct sigcontext: fault address, x0…x30, sp, pc. */
#define HB_UC_AT 128
#define HB_UC_FILE 184
#define HB_UC_BYTES (HB_UC_FILE + 33 * 8)
#define HB_FILE_COLUMNS 31
enum { HB_FILE_BP = 29, HB_FILE_RA = 30, HB_FILE_SP = 31, HB_FILE_PC = 32 };

HB_INLINE uint32_t hb_file_index(uint32_t column) { return column & 31; }

/* Can these 8 bytes be read? As on x86-64. signal-safe */
static int hb_readable8(uintptr_t p) {
  return p && hb_sys4(HB_SYS_rt_sigprocmask, 12345, p, 0, 8) != -14; /* EFAULT */
}

/* The instruction at `pc`, 0 when it cannot be read. signal-safe */
static uint32_t hb_instruction(uintptr_t pc) {
  if (pc < 0x10000 || pc >> HB_VA_BITS || pc & 3 || !hb_readable8(pc & ~(uintptr_t)7)) return 0;
  return *(const volatile uint32_t *)pc;
}

/* Does a call end at `ra`? bl, blr, blraa and their kin. signal-safe */
static int hb_after_call(uintptr_t ra) {
  uint32_t i = hb_instruction(ra - 4);
  return i >> 26 == 0x25 || (i & 0xfefff800) == 0xd63f0800 || (i & 0xfffffc1f) == 0xd63f0000;
}

/* A signal restorer without call frame information: mov x8, #139; svc #0. signal-safe */
static int hb_restorer_at(uintptr_t pc) {
  return hb_instruction(pc) == 0xd2801168 && hb_instruction(pc + 4) == 0xd4000001;
}

#endif
