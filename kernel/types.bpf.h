/* types.bpf.h: what the programs read of the kernel's own structures. Offsets are those of the kernel that they are loaded
 * into (CO-RE): only names and nesting matter here. */
#ifndef HB_TYPES_BPF_H
#define HB_TYPES_BPF_H

#include <stdbool.h>
#include <stddef.h>

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef __u16 __sum16;

/* include/uapi/linux/bpf.h */
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_USER_STACK = 1 << 8 };
enum { BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_PERCPU_ARRAY = 6, BPF_MAP_TYPE_RINGBUF = 27 };

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
typedef struct {
  int counter;
} atomic_t;
struct signal_struct {
  atomic_t live;
};
struct task_struct {
  unsigned int __state;
  int pid, tgid;
  struct signal_struct *signal;
};
struct task_struct___old {
  long state;
};
#pragma clang attribute pop

#endif
