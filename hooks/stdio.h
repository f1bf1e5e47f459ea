/* stdio.h: stdio, where its buffer does not do. libc reads and writes by inner calls that nobody can interpose, so the
 * outer ones are wrapped; but one that only copies from or to the buffer costs a few ns and cannot sleep. glibc keeps
 * the buffer's ends where they have been since the beginning of its ABI (libio/bits/types/struct_FILE.h): a look
 * at them tells. musl's FILE is another: there every call is proxied.
 *
 * Not seen: a refill in the middle of a line that was partly buffered; printf and scanf, whose arguments cannot be
 * handed on. */
#ifndef HB_STDIO_H
#define HB_STDIO_H

#include "hooks/call.h"

struct hb_file { /* the beginning of glibc's struct _IO_FILE */
  int flags;
  const char *read_ptr, *read_end, *read_base;
  const char *write_base, *write_ptr, *write_end;
};

/* Bytes that can be read, or written, without a system call. hook path */
HB_INLINE uint64_t hb_file_holds(const void *f) {
  const struct hb_file *x = f;
  return hb.is_glibc && x->read_end > x->read_ptr ? (uint64_t)(x->read_end - x->read_ptr) : 0;
}
HB_INLINE uint64_t hb_file_room(const void *f) {
  const struct hb_file *x = f;
  return hb.is_glibc && x->write_end > x->write_ptr ? (uint64_t)(x->write_end - x->write_ptr) : 0;
}

/* `direct`: the buffer does. The result is a pointer or a count: no error to tell from it. */
#define HB_STDIO(type, symbol, file, direct, params, args)                                          \
  HB_EXPORT type hb_stdio_##symbol params __asm__(#symbol);                                         \
  static HB_NOINLINE type hb_stdio_long_##symbol params {                                           \
    HB_UNWIND_SCOPE;                                                                                \
    typedef type(*fn) params;                                                                       \
    struct hb_call c;                                                                               \
    hb_call_enter(&c, HB_HOOK_##symbol, (uint64_t)(file), HB_PARKS_##symbol, HB_FRAME);             \
    type r = ((fn)hb_real.symbol)args;                                                              \
    hb_call_leave(&c, HB_HOOK_##symbol, (uint64_t)(file), (int64_t)r, HB_VALUE, HB_FRAME);          \
    return r;                                                                                       \
  }                                                                                                 \
  HB_EXPORT type hb_stdio_##symbol params {                                                         \
    typedef type(*fn) params;                                                                       \
    fn real = HB_REAL(fn, symbol);                                                                  \
    if (HB_UNLIKELY(!real)) return (type)hb_fail(HB_ENOSYS);                                        \
    if (HB_LIKELY(direct)) return real args;                                                        \
    return hb_stdio_long_##symbol args;                                                             \
  }

HB_STDIO(size_t, fread, f, hb_file_holds(f) >= a * n, (hb_dst p, size_t a, size_t n, hb_dst f), (p, a, n, f))
HB_STDIO(size_t, fread_unlocked, f, hb_file_holds(f) >= a * n, (hb_dst p, size_t a, size_t n, hb_dst f), (p, a, n, f))
HB_STDIO(size_t, __fread_chk, f, hb_file_holds(f) >= a * n, (hb_dst p, size_t room, size_t a, size_t n, hb_dst f),
         (p, room, a, n, f))
HB_STDIO(hb_dst, fgets, f, hb_file_holds(f) > 0, (hb_dst p, int n, hb_dst f), (p, n, f))
HB_STDIO(hb_dst, __fgets_chk, f, hb_file_holds(f) > 0, (hb_dst p, size_t room, int n, hb_dst f), (p, room, n, f))
HB_STDIO(int, fgetc, f, hb_file_holds(f) > 0, (hb_dst f), (f))
HB_STDIO(int, getc, f, hb_file_holds(f) > 0, (hb_dst f), (f))
HB_STDIO(hb_ssize, getdelim, f, hb_file_holds(f) > 0, (hb_dst line, hb_dst n, int delim, hb_dst f), (line, n, delim, f))
HB_STDIO(hb_ssize, getline, f, hb_file_holds(f) > 0, (hb_dst line, hb_dst n, hb_dst f), (line, n, f))
HB_STDIO(size_t, fwrite, f, hb_file_room(f) > a * n, (hb_src p, size_t a, size_t n, hb_dst f), (p, a, n, f))
HB_STDIO(size_t, fwrite_unlocked, f, hb_file_room(f) > a * n, (hb_src p, size_t a, size_t n, hb_dst f), (p, a, n, f))
HB_STDIO(int, fputs, f, hb_short_text(s, hb_file_room(f)), (const char *s, hb_dst f), (s, f))
HB_STDIO(int, puts, 0, 0, (hb_src s), (s))
HB_STDIO(int, fflush, f, 0, (hb_dst f), (f))
HB_STDIO(int, fclose, f, 0, (hb_dst f), (f))

#endif
