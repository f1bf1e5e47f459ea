/* dormant.h: the work of a dormant agent. It wraps no function, so a program pays nothing for it; it can do what otherwise
 * only a stopped thread can be made to do: map memory and open sockets for an attacher (package attach).
 *
 * Attacher and program agree as Dekker did: the attacher writes `asked`, or 0 to withdraw, and then reads `taken`; the
 * thread writes `taken` and then reads `asked`. One of the two sees the other. */
#ifndef HB_DORMANT_H
#define HB_DORMANT_H

#include "agent/os.h"
#include "segment/layout.h"

#define HB_PR_SET_PTRACER 0x59616d61

static uint64_t hb_ring_table[HB_RING_ENTRIES];
extern char hb_ring[] __attribute__((visibility("hidden")));

HB_EXPORT struct hb_dormant hb_dormant = {HB_DORMANT_MAGIC, HB_DORMANT_VERSION, sizeof(struct hb_dormant), 0, 0, (uint64_t)hb_ring_table};

struct hb_bell_page {
  struct hb_bell bell;
  struct hb_bell_op ops[HB_BELL_OPS];
};

/* What the ring's entries look at: a word that is zero as long as no page is mapped. */
static struct hb_bell_page hb_no_bell;
__attribute__((used)) static struct hb_bell_page *hb_bell_now = &hb_no_bell;

/* hook path */
static long hb_bell_system(const struct hb_bell_op *o) {
  return hb_raw6((long)o->nr, (long)o->a0, (long)o->a1, (long)o->a2, (long)o->a3, (long)o->a4, (long)o->a5);
}

/* The saved registers of the caller's floating point and vectors lie on the stack meanwhile. hook path */
static void hb_bell_call(uint64_t function, uint64_t argument) {
  _Alignas(64) char room[512];
  __asm__ volatile("fxsave64 %0" : "=m"(room));
  ((long (*)(long))function)((long)argument);
  __asm__ volatile("fxrstor64 %0" : : "m"(room));
}

/* Returns 0, or 1 + the operation that failed. hook path */
static uint32_t hb_bell_work(const struct hb_bell_op *ops, uint32_t count) {
  for (uint32_t i = 0; i < count; i++) {
    const struct hb_bell_op *o = &ops[i];
    switch (o->kind) {
      case HB_BELL_MAP:
        if ((uint64_t)hb_bell_system(o) == o->a0) break;
        for (uint32_t k = i; k-- > 0;)
          if (ops[k].kind == HB_BELL_MAP && ops[k].undo) hb_raw6(HB_SYS_munmap, (long)ops[k].a0, (long)ops[k].a1, 0, 0, 0, 0);
        return 1 + i;
      case HB_BELL_CALL: hb_bell_system(o); break;
      case HB_BELL_STORE: *(volatile uint64_t *)o->nr = o->a0; break;
      case HB_BELL_FUNC: hb_bell_call(o->nr, o->a0); break;
      default: return 1 + i;
    }
  }
  return 0;
}

/* Called by the ring while something is asked. A vfork child has its parent's memory and other descriptors: it is passed over.
 * hook path */
__attribute__((used)) static void hb_bell_answer(void) {
  struct hb_bell *b = &hb_bell_now->bell;
  uint32_t n = __atomic_load_n(&b->asked, __ATOMIC_ACQUIRE), taken = __atomic_load_n(&b->taken, __ATOMIC_RELAXED);
  if (!n || taken == n || (uint32_t)hb_raw6(HB_SYS_getpid, 0, 0, 0, 0, 0, 0) != b->pid) return;
  if (!__atomic_compare_exchange_n(&b->taken, &taken, n, 0, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) return;
  uint32_t count = b->count < HB_BELL_OPS ? b->count : HB_BELL_OPS;
  b->failed = __atomic_load_n(&b->asked, __ATOMIC_SEQ_CST) == n ? hb_bell_work(hb_bell_now->ops, count) : HB_BELL_WITHDRAWN;
  __atomic_store_n(&b->done, n, __ATOMIC_RELEASE);
}

extern char **environ __attribute__((weak)); /* musl hands nothing to constructors */

static int hb_dormant_env(const char *setting) {
  if (!&environ || !environ) return 0;
  for (char **e = environ; *e; e++)
    if (hb_streq(*e, setting)) return 1;
  return 0;
}

/* init only */
__attribute__((constructor)) static void hb_dormant_begin(void) {
  long p = hb_raw6(HB_SYS_mmap, 0, sizeof(struct hb_bell_page), HB_PROT_RW, HB_MAP_PRIVATE | HB_MAP_ANON | HB_MAP_NORESERVE, -1, 0);
  if (hb_is_err(p)) return;
  if (hb_is_err(hb_raw6(HB_SYS_madvise, p, sizeof(struct hb_bell_page), HB_MADV_WIPEONFORK, 0, 0, 0))) {
    hb_raw6(HB_SYS_munmap, p, sizeof(struct hb_bell_page), 0, 0, 0, 0);
    return;
  }
  hb_bell_now = (struct hb_bell_page *)p;
  hb_dormant.ring = (uint64_t)hb_ring;
  __atomic_store_n(&hb_dormant.bell, (uint64_t)p, __ATOMIC_RELEASE);
  /* the user's word: Yama is to let other processes of the same user in */
  if (hb_dormant_env("HBTRACE_TRACER=any")) hb_raw6(HB_SYS_prctl, HB_PR_SET_PTRACER, -1, 0, 0, 0, 0);
}

/* An entry keeps all registers but r11, which belongs to nobody at a call. */
__asm__(
    ".text\n"
    ".type hb_ring_common, @function\n"
    "hb_ring_common:\n"
    "  .cfi_startproc\n"
    "  push %r11\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  mov hb_bell_now(%rip), %r11\n"
    "  cmpl $0, (%r11)\n"
    "  jne 2f\n"
    "1:\n"
    "  pop %r11\n"
    "  .cfi_adjust_cfa_offset -8\n"
    "  jmp *(%r11)\n"
    "2:\n"
    "  .cfi_adjust_cfa_offset 8\n"
    "  push %rax\n  .cfi_adjust_cfa_offset 8\n"
    "  push %rcx\n  .cfi_adjust_cfa_offset 8\n"
    "  push %rdx\n  .cfi_adjust_cfa_offset 8\n"
    "  push %rsi\n  .cfi_adjust_cfa_offset 8\n"
    "  push %rdi\n  .cfi_adjust_cfa_offset 8\n"
    "  push %r8\n  .cfi_adjust_cfa_offset 8\n"
    "  push %r9\n  .cfi_adjust_cfa_offset 8\n"
    "  push %r10\n  .cfi_adjust_cfa_offset 8\n"
    "  call hb_bell_answer\n"
    "  pop %r10\n  .cfi_adjust_cfa_offset -8\n"
    "  pop %r9\n  .cfi_adjust_cfa_offset -8\n"
    "  pop %r8\n  .cfi_adjust_cfa_offset -8\n"
    "  pop %rdi\n  .cfi_adjust_cfa_offset -8\n"
    "  pop %rsi\n  .cfi_adjust_cfa_offset -8\n"
    "  pop %rdx\n  .cfi_adjust_cfa_offset -8\n"
    "  pop %rcx\n  .cfi_adjust_cfa_offset -8\n"
    "  pop %rax\n  .cfi_adjust_cfa_offset -8\n"
    "  jmp 1b\n"
    "  .cfi_endproc\n"
    ".size hb_ring_common, . - hb_ring_common\n"
    ".p2align 4\n"
    ".hidden hb_ring\n"
    ".globl hb_ring\n"
    "hb_ring:\n"
    "  .cfi_startproc\n"
    ".set hb_ring_at, 0\n"
    ".rept 500\n"
    "  endbr64\n"
    "  lea hb_ring_table+hb_ring_at(%rip), %r11\n"
    "  .byte 0xe9\n" /* jmp with 32 bits, so that each entry has 16 bytes */
    "  .long hb_ring_common - . - 4\n"
    ".set hb_ring_at, hb_ring_at + 8\n"
    ".endr\n"
    "  .cfi_endproc\n"
    ".if . - hb_ring - 16 * 500\n"
    ".error \"an entry of the ring has not HB_RING_BYTES\"\n"
    ".endif\n");
_Static_assert(HB_RING_ENTRIES == 500 && HB_RING_BYTES == 16, "as the assembler has it");

#endif
