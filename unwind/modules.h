/* modules.h: unwind tables and module lists in shared memory, byte by byte, for the collector that writes them
 * (modules.go, table.go) and the agents that read them (table.h).
 *
 * One *region* per session, shared by all its processes; agents map it read-only:
 *
 *   offset 0                        struct hb_region
 *   header_bytes                    struct hb_region_slot[slots]   one per process slot of the session
 *   behind that, as they come       tables (struct hb_table_head …) and module lists (struct hb_modules …)
 *
 * Offsets count from the region's first byte, since every process maps it elsewhere. Tables and lists are
 * written once and never changed or moved: a table serves every process that has the module mapped, at
 * whatever bias. A process's list changes by *publication*: the collector writes a whole new list, then
 * stores its offset into the process's slot with release; hb_modules_adopt() loads it with acquire. Lists that
 * were replaced stay where they are, since a thread may still be walking by them.
 *
 * Addresses of a table are ELF virtual addresses. Readers check every header once and every index at its use, so
 * that no content, however wrong, makes them read outside the region. */
#ifndef HB_MODULES_H
#define HB_MODULES_H

#include <stddef.h>
#include <stdint.h>

#define HB_REGION_MAGIC 0x31736e6977756268ull /* "hbuwins1", little endian */
#define HB_TABLE_MAGIC 0x31626174776e7568ull  /* "hunwtab1" */
#define HB_MODULES_MAGIC 0x3173646f6d77686bull /* "khwmods1" */
#define HB_TABLES_VERSION 2u

struct hb_region {
  uint64_t magic;
  uint32_t version;
  uint32_t header_bytes; /* sizeof(struct hb_region) */
  uint64_t bytes;        /* of the whole region */
  uint32_t slots;
  uint32_t machine;      /* ELF e_machine of its tables */
  uint64_t reserved[4];
};

struct hb_region_slot {
  _Atomic uint64_t modules; /* offset of the process's list; 0: none yet. Written by the collector, release */
  uint64_t reserved;
};

struct hb_module {
  uint64_t lo, hi; /* addresses of its executable bytes, [lo, hi); may hold code that the table has no rows for */
  uint64_t bias;   /* address - ELF virtual address */
  uint64_t table;  /* offset of its table; 0: it has none */
};

/* Sorted by lo, without overlaps. */
struct hb_modules {
  uint64_t magic;
  uint64_t generation; /* no two lists of a region have the same; memory of stacks and rules is good for one */
  uint32_t proc_uid;   /* whose list it is: process slots are used again */
  uint32_t count;
  uint64_t python; /* offset of its struct hb_python; 0: it runs no Python whose frames can be found */
  /* struct hb_module[count] follow */
};

/* A compiled table: for every address in [text_lo, text_hi) the row with the greatest pc that is not above it.
 *
 *   index   uint32_t[buckets + 1]  first row of each 1 KiB of text; the last entry equals rows
 *   pcs     uint16_t[rows]         low 10 bits of the row's address
 *   ids     uint8_t[rows]          its rule; HB_ID_FAR: the one that far says
 *   far     struct hb_far[far]     the rules of those rows, by row
 *   rules   struct hb_rule[rules]  rule 0 is HB_RULE_NONE
 *   words   uint32_t[rules]        the same in 27 bits where they fit (HB_WORD_*)
 *
 * Rules are numbered by how many rows have them, so that few rows are far. Row 0 stands at text_lo, so that every address in range has
 * a row. */
#define HB_BUCKET_BITS 10
#define HB_ID_FAR 0xffu
struct hb_far {
  uint32_t row, rule;
};

struct hb_table_head {
  uint64_t magic;
  uint32_t version;
  uint32_t machine; /* ELF e_machine: 62 x86-64, 183 arm64 */
  uint64_t bytes;   /* of the whole table, a multiple of 8 */
  uint64_t text_lo; /* ELF virtual address, a multiple of 1 KiB */
  uint64_t text_hi;
  uint32_t buckets;
  uint32_t rows;
  uint32_t rules;
  uint32_t far;
  uint32_t index_off; /* offsets from the head */
  uint32_t pcs_off;
  uint32_t ids_off;
  uint32_t rules_off;
  uint32_t words_off;
  uint32_t far_off;
};

/* How to find the caller. CFA: the stack pointer after the return; the return address lies at CFA - 8 on x86-64.
 * SP, FP and other registers are those of the frame itself; *x is the word at x. On arm64 the return address lies at CFA + add,
 * and in the packed rule behind the caller's FP; it may be signed. */
enum {
  HB_RULE_NONE,   /* nothing is known about this address */
  HB_RULE_SP,     /* CFA = SP + off */
  HB_RULE_FP,     /* CFA = FP + off */
  HB_RULE_PLT,    /* CFA = SP + off + (add <= (pc & 15) ? 8 : 0): a lazy-binding stub, before and after its push */
  HB_RULE_REG,    /* CFA = base + off; base is a DWARF register number */
  HB_RULE_DEREF,  /* CFA = *(base + 8 * index + off) + add; index HB_NO_INDEX: none */
  HB_RULE_END,    /* the outermost frame */
  HB_RULE_SIGNAL, /* a signal frame: the interrupted registers lie at SP as the kernel left them */
  HB_RULE_OTHER,  /* known, but not expressible here */
  HB_RULE_LINK,   /* CFA = SP + off; the return address is in register base */
  HB_RULES
};
#define HB_NO_INDEX 0xff

/* The caller's FP. */
enum {
  HB_FP_SAME, /* not changed */
  HB_FP_CFA,  /* *(CFA + fp) */
  HB_FP_FP,   /* *(FP + fp) */
  HB_FP_SP,   /* *(SP + fp) */
  HB_FP_REG,  /* in register fp */
};

struct hb_rule {
  uint8_t kind;    /* HB_RULE_* */
  uint8_t fp_kind; /* HB_FP_* */
  uint8_t base;
  uint8_t index;
  int32_t off;
  int32_t add;
  int32_t fp;
};

/* A rule in 27 bits: FP 12, CFA / 8 12, kind 3. */
enum {
  HB_WORD_NONE,
  HB_WORD_SP,     /* HB_RULE_SP */
  HB_WORD_FP,     /* HB_RULE_FP */
  HB_WORD_CHAIN,  /* in agents only: no row, and no signal restorer: by frame pointer */
  HB_WORD_END,    /* HB_RULE_END */
  HB_WORD_SIGNAL, /* HB_RULE_SIGNAL */
  HB_WORD_SLOW,   /* none of these: the rule itself */
};
#define HB_WORD_CFA 0x7ff8u     /* word & HB_WORD_CFA: the CFA's offset in bytes */
#define HB_WORD_FP_SHIFT 15     /* 0: HB_FP_SAME; n: *(CFA - 8n) */
#define HB_WORD_FP_FP 0xfffu    /* *(FP) */
#define HB_WORD_MASK ((1u << 27) - 1)

/* modules.go and table.go assert the same numbers. */
_Static_assert(sizeof(struct hb_region) == 64, "layout");
_Static_assert(offsetof(struct hb_region, bytes) == 16, "layout");
_Static_assert(offsetof(struct hb_region, slots) == 24, "layout");
_Static_assert(offsetof(struct hb_region, machine) == 28, "layout");
_Static_assert(sizeof(struct hb_region_slot) == 16, "layout");
_Static_assert(sizeof(struct hb_module) == 32, "layout");
_Static_assert(offsetof(struct hb_module, hi) == 8, "layout");
_Static_assert(offsetof(struct hb_module, bias) == 16, "layout");
_Static_assert(offsetof(struct hb_module, table) == 24, "layout");
_Static_assert(sizeof(struct hb_modules) == 32, "layout");
_Static_assert(offsetof(struct hb_modules, generation) == 8, "layout");
_Static_assert(offsetof(struct hb_modules, proc_uid) == 16, "layout");
_Static_assert(offsetof(struct hb_modules, count) == 20, "layout");
_Static_assert(sizeof(struct hb_far) == 8, "layout");
_Static_assert(offsetof(struct hb_far, rule) == 4, "layout");
_Static_assert(sizeof(struct hb_table_head) == 80, "layout");
_Static_assert(offsetof(struct hb_table_head, machine) == 12, "layout");
_Static_assert(offsetof(struct hb_table_head, bytes) == 16, "layout");
_Static_assert(offsetof(struct hb_table_head, text_lo) == 24, "layout");
_Static_assert(offsetof(struct hb_table_head, text_hi) == 32, "layout");
_Static_assert(offsetof(struct hb_table_head, buckets) == 40, "layout");
_Static_assert(offsetof(struct hb_table_head, rows) == 44, "layout");
_Static_assert(offsetof(struct hb_table_head, rules) == 48, "layout");
_Static_assert(offsetof(struct hb_table_head, far) == 52, "layout");
_Static_assert(offsetof(struct hb_table_head, index_off) == 56, "layout");
_Static_assert(offsetof(struct hb_table_head, pcs_off) == 60, "layout");
_Static_assert(offsetof(struct hb_table_head, ids_off) == 64, "layout");
_Static_assert(offsetof(struct hb_table_head, rules_off) == 68, "layout");
_Static_assert(offsetof(struct hb_table_head, words_off) == 72, "layout");
_Static_assert(offsetof(struct hb_table_head, far_off) == 76, "layout");
_Static_assert(sizeof(struct hb_rule) == 16, "layout");
_Static_assert(offsetof(struct hb_rule, off) == 4, "layout");
_Static_assert(offsetof(struct hb_rule, add) == 8, "layout");
_Static_assert(offsetof(struct hb_rule, fp) == 12, "layout");

#endif
