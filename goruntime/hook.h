/* hook.h: how the runtime's code comes here. The first instructions of a hooked function are replaced by a jump to
 * one of these entries; what was there lies at the configuration's *_rest, followed by a jump back behind it.
 *
 * The hooked functions are nosplit: their stack has no room for us. So an entry changes to the top of the stack of
 * m.gsignal, on which this thread's signals run. Where there is none, or the thread is on it already, nothing is
 * recorded. Go's calling convention (ABIInternal): R14 is the current g; AX, BX, CX hold the arguments; DI, SI, R8 to
 * R13 are free here; no SSE register is touched (X15 is 0). */
#ifndef HB_GO_HOOK_H
#define HB_GO_HOOK_H

#include <stddef.h>

#include "goruntime/sample.h"
#include "goruntime/states.h"

#define HB_STR_(x) #x
#define HB_STR(x) HB_STR_(x)
#define HB_AT_STATUS_REST 24
#define HB_AT_ENTER_REST 32
#define HB_AT_EXIT_REST 40
#define HB_AT_QUIT_REST 48
#define HB_AT_HANDLER 56
#define HB_AT_COOKIE 128
#define HB_AT_G_M 64
#define HB_AT_M_GSIGNAL 68
_Static_assert(offsetof(struct hb_go_config, status_rest) == HB_AT_STATUS_REST, "hook.h");
_Static_assert(offsetof(struct hb_go_config, enter_rest) == HB_AT_ENTER_REST, "hook.h");
_Static_assert(offsetof(struct hb_go_config, exit_rest) == HB_AT_EXIT_REST, "hook.h");
_Static_assert(offsetof(struct hb_go_config, quit_rest) == HB_AT_QUIT_REST, "hook.h");
_Static_assert(offsetof(struct hb_go_config, handler) == HB_AT_HANDLER, "hook.h");
_Static_assert(offsetof(struct hb_go_config, cookie) == HB_AT_COOKIE, "hook.h");
_Static_assert(offsetof(struct hb_go_config, g_m) == HB_AT_G_M, "hook.h");
_Static_assert(offsetof(struct hb_go_config, m_gsignal) == HB_AT_M_GSIGNAL, "hook.h");

#define HB_ENTRY(name, rest, arguments, function)                                                     \
  ".text\n.globl " name "\n" name ":\n"                                                               \
  "  movl hb_go+" HB_STR(HB_AT_G_M) "(%rip), %r12d\n"                                                 \
  "  mov (%r14,%r12), %r13\n" /* m */                                                                 \
  "  movl hb_go+" HB_STR(HB_AT_M_GSIGNAL) "(%rip), %r12d\n"                                           \
  "  mov (%r13,%r12), %r12\n" /* its gsignal */                                                       \
  "  test %r12, %r12\n  jz 1f\n"                                                                      \
  "  cmp %r12, %r14\n  je 1f\n"                                                                       \
  "  mov 8(%r12), %r12\n" /* the high end of its stack */                                             \
  "  mov %rsp, %r13\n"                                                                                \
  "  lea -128(%r12), %rsp\n"                                                                          \
  "  and $-16, %rsp\n"                                                                                \
  "  push %rax\n  push %rbx\n  push %rcx\n  push %r13\n"                                              \
  arguments                                                                                           \
  "  call " function "\n"                                                                             \
  "  pop %r13\n  pop %rcx\n  pop %rbx\n  pop %rax\n"                                                  \
  "  mov %r13, %rsp\n"                                                                                \
  "1: jmp *hb_go+" HB_STR(rest) "(%rip)\n"

__asm__(HB_ENTRY("hb_go_status", HB_AT_STATUS_REST,
                 "  mov %rax, %rdi\n  mov %ebx, %esi\n  mov %ecx, %edx\n  mov %r14, %rcx\n  mov %rbp, %r8\n",
                 "hb_go_on_status")
        HB_ENTRY("hb_go_enter", HB_AT_ENTER_REST, "  mov %r14, %rdi\n", "hb_go_on_enter")
        HB_ENTRY("hb_go_exit", HB_AT_EXIT_REST, "  mov %r14, %rdi\n  mov %rbp, %rsi\n", "hb_go_on_exit"));

/* runtime.exit, the last of the program's life, is assembly (ABI0): its argument is on the stack, and R14 may be anything. */
__asm__(".text\n.globl hb_go_quit\nhb_go_quit:\n"
        "  mov %fs:-8, %r10\n  test %r10, %r10\n  jz 1f\n" /* g */
        "  movl hb_go+" HB_STR(HB_AT_G_M) "(%rip), %r12d\n"
        "  mov (%r10,%r12), %r13\n  test %r13, %r13\n  jz 1f\n"
        "  movl hb_go+" HB_STR(HB_AT_M_GSIGNAL) "(%rip), %r12d\n"
        "  mov (%r13,%r12), %r12\n"
        "  test %r12, %r12\n  jz 1f\n"
        "  cmp %r12, %r10\n  je 1f\n"
        "  mov 8(%r12), %r12\n"
        "  mov %rsp, %r13\n"
        "  lea -128(%r12), %rsp\n"
        "  and $-16, %rsp\n"
        "  push %r13\n  push %r13\n"
        "  call hb_go_on_quit\n"
        "  pop %r13\n  mov %r13, %rsp\n"
        "1: jmp *hb_go+" HB_STR(HB_AT_QUIT_REST) "(%rip)\n");

/* The handler of the sampling signal: ours if it was queued with the session's cookie, else the runtime's. There is a
 * restorer because the kernel demands one. */
__asm__(".text\n.globl hb_go_signal\nhb_go_signal:\n"
        "  cmpl $-1, 8(%rsi)\n  jne 2f\n" /* si_code: SI_QUEUE */
        "  movl hb_go+" HB_STR(HB_AT_COOKIE) "(%rip), %eax\n"
        "  cmpl %eax, 24(%rsi)\n  jne 2f\n"
        "  jmp hb_go_on_signal\n"
        "2: jmp *hb_go+" HB_STR(HB_AT_HANDLER) "(%rip)\n"
        ".globl hb_go_restorer\nhb_go_restorer:\n"
        "  mov $15, %eax\n  syscall\n"); /* rt_sigreturn */

#endif
