/* elf.h: finding the functions behind our wrappers, without the loader's dlsym.
 *
 * dlsym(RTLD_NEXT) cannot be used from inside malloc: it takes locks, a failed look-up allocates, before
 * glibc 2.36 it returns the oldest version of a symbol (a condvar of another layout), and before 2.34 it is not
 * in libc at all. So the agent walks the loaded objects itself, in search order: the loader's list of them
 * (_r_debug, glibc), or dl_iterate_phdr (musl; not first, since sanitizers wrap it and are not ready that early).
 * The objects behind ours are searched through their GNU or SysV hash tables for the wanted version.
 * Specification: System V gABI chapter 5; "GNU hash" and symbol versions as in the LSB. */
#ifndef HB_ELF_H
#define HB_ELF_H

#include <elf.h>
#include <link.h>

#include "agent/os.h"

struct hb_object {
  uintptr_t bias;
  const Elf64_Sym *syms;
  const char *strings;
  const uint32_t *gnu_hash;
  const uint32_t *sysv_hash;
  const uint16_t *versym;
  const Elf64_Verdef *verdef;
  uint64_t verdef_count;
};

/* A function that is looked for. */
struct hb_wanted {
  const char *name, *version; /* version "": the default one */
  void **found;
};

/* One walk over the loaded objects. It remembers none of them: a program may have thousands. */
struct hb_search {
  const struct hb_wanted *wanted;
  int n;
  int any_version; /* take the default version where the wanted one was not found */
  int last;        /* the last definition counts, not the first */
  int seen_self;   /* the walk has passed our own object */
};

extern const Elf64_Dyn hb_own_dynamic[] __asm__("_DYNAMIC") __attribute__((visibility("hidden")));
extern const char __ehdr_start[] __attribute__((visibility("hidden"))), _end[] __attribute__((visibility("hidden")));

/* glibc relocates the pointers of a dynamic section in place, musl and the vDSO do not. */
static uintptr_t hb_dyn_ptr(uintptr_t bias, uint64_t v) { return v < bias ? bias + v : (uintptr_t)v; }

/* init only */
static void hb_object_fill(struct hb_object *o, uintptr_t bias, const Elf64_Dyn *d) {
  memset(o, 0, sizeof *o);
  o->bias = bias;
  for (; d->d_tag != DT_NULL; d++) {
    uintptr_t p = hb_dyn_ptr(bias, d->d_un.d_ptr);
    switch (d->d_tag) {
      case DT_SYMTAB: o->syms = (const Elf64_Sym *)p; break;
      case DT_STRTAB: o->strings = (const char *)p; break;
      case DT_GNU_HASH: o->gnu_hash = (const uint32_t *)p; break;
      case DT_HASH: o->sysv_hash = (const uint32_t *)p; break;
      case DT_VERSYM: o->versym = (const uint16_t *)p; break;
      case DT_VERDEF: o->verdef = (const Elf64_Verdef *)p; break;
      case DT_VERDEFNUM: o->verdef_count = d->d_un.d_val; break;
      default: break;
    }
  }
}

/* Is definition i the one that a reference to `version` (NULL: the default one) means? */
static int hb_version_fits(const struct hb_object *o, uint32_t i, const char *version) {
  if (!o->versym) return 1;
  uint16_t v = o->versym[i];
  if (!version) return (v & 0x8000) == 0; /* hidden = an old version kept for old programs */
  if (!o->verdef) return 1;
  const Elf64_Verdef *d = o->verdef;
  for (uint64_t k = 0; k < o->verdef_count; k++) {
    if (d->vd_ndx == (v & 0x7fff)) {
      const Elf64_Verdaux *a = (const Elf64_Verdaux *)((const char *)d + d->vd_aux);
      return hb_streq(o->strings + a->vda_name, version);
    }
    if (!d->vd_next) break;
    d = (const Elf64_Verdef *)((const char *)d + d->vd_next);
  }
  return 0;
}

static const Elf64_Sym *hb_symbol_at(const struct hb_object *o, uint32_t i, const char *name, const char *version) {
  const Elf64_Sym *s = &o->syms[i];
  int type = ELF64_ST_TYPE(s->st_info), bind = ELF64_ST_BIND(s->st_info);
  if (s->st_shndx == SHN_UNDEF || s->st_value == 0) return NULL;
  if (type != STT_FUNC && type != STT_GNU_IFUNC && type != STT_NOTYPE) return NULL;
  if (bind != STB_GLOBAL && bind != STB_WEAK) return NULL;
  if (!hb_streq(o->strings + s->st_name, name) || !hb_version_fits(o, i, version)) return NULL;
  return s;
}

/* Address of a defined function in one object, NULL when it has none. init only */
static void *hb_object_find(const struct hb_object *o, const char *name, const char *version) {
  const Elf64_Sym *s = NULL;
  if (!o->syms || !o->strings) return NULL;
  if (o->gnu_hash) {
    const uint32_t *g = o->gnu_hash;
    uint32_t buckets = g[0], first = g[1], words = g[2], shift = g[3], h = 5381;
    for (const char *c = name; *c; c++) h = h * 33 + (uint8_t)*c;
    const uint64_t *bloom = (const uint64_t *)(g + 4);
    const uint32_t *bucket = (const uint32_t *)(bloom + words), *chain = bucket + buckets;
    uint64_t want = 1ull << (h & 63) | 1ull << ((h >> shift) & 63);
    if (!buckets || (bloom[(h >> 6) % words] & want) != want) return NULL;
    uint32_t i = bucket[h % buckets];
    if (i < first) return NULL;
    for (;; i++) {
      uint32_t c = chain[i - first];
      if ((c | 1) == (h | 1) && (s = hb_symbol_at(o, i, name, version)) != NULL) break;
      if (c & 1) return NULL;
    }
  } else if (o->sysv_hash) {
    const uint32_t *t = o->sysv_hash;
    uint32_t h = 0;
    for (const char *c = name; *c; c++) {
      h = (h << 4) + (uint8_t)*c;
      uint32_t high = h & 0xf0000000u;
      h = (h ^ (high >> 24)) & ~high;
    }
    if (!t[0]) return NULL;
    for (uint32_t i = t[2 + h % t[0]]; i; i = t[2 + t[0] + i])
      if ((s = hb_symbol_at(o, i, name, version)) != NULL) break;
  }
  if (!s) return NULL;
  void *p = (void *)(o->bias + s->st_value);
  if (ELF64_ST_TYPE(s->st_info) == STT_GNU_IFUNC) p = ((void *(*)(void))p)();
  return p;
}

/* One loaded object: what is still missing is looked for in it. hook path */
static void hb_search_object(struct hb_search *all, uintptr_t bias, const Elf64_Dyn *dyn) {
  struct hb_object o;
  if (dyn == hb_own_dynamic) {
    all->seen_self = 1;
    return;
  }
  if (!all->seen_self || !dyn) return;
  hb_object_fill(&o, bias, dyn);
  for (int i = 0; i < all->n; i++) {
    const struct hb_wanted *w = &all->wanted[i];
    if (*w->found && !all->last) continue;
    void *p = hb_object_find(&o, w->name, *w->version && !all->any_version ? w->version : NULL);
    if (p) __atomic_store_n(w->found, p, __ATOMIC_RELEASE);
  }
}

/* dl_iterate_phdr callback. init only */
static int hb_search_visit(struct dl_phdr_info *info, size_t size, void *arg) {
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
      hb_search_object(arg, info->dlpi_addr, (const Elf64_Dyn *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr));
  return 0;
}

/* The vDSO's clock_gettime: its image has one dynamic section and small tables. init only */
static void *hb_vdso_find(uintptr_t ehdr, const char *name) {
  if (!ehdr) return NULL;
  const Elf64_Ehdr *e = (const Elf64_Ehdr *)ehdr;
  const Elf64_Phdr *p = (const Elf64_Phdr *)(ehdr + e->e_phoff);
  uintptr_t bias = ehdr;
  const Elf64_Dyn *dyn = NULL;
  for (int i = 0; i < e->e_phnum; i++) {
    if (p[i].p_type == PT_LOAD) bias = ehdr + p[i].p_offset - p[i].p_vaddr;
    if (p[i].p_type == PT_DYNAMIC) dyn = (const Elf64_Dyn *)(ehdr + p[i].p_offset);
  }
  if (!dyn) return NULL;
  struct hb_object o;
  hb_object_fill(&o, bias, dyn);
  return hb_object_find(&o, name, NULL);
}

#endif
