/* inside.h: what the test programs of this folder share: their own modules, told to whoever runs them, and the
 * region of tables that they get back. */
#ifndef HB_TEST_INSIDE_H
#define HB_TEST_INSIDE_H

#include "unwind/verify.h"

#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <ucontext.h>
#include <unistd.h>

static struct hb_tables test_tables;

static int test_tell(struct dl_phdr_info *i, size_t size, void *out) {
  (void)size;
  char exe[4096];
  const char *name = i->dlpi_name;
  if (!name || !*name) {
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n < 0) return 0;
    exe[n] = 0;
    name = exe;
  }
  if (name[0] != '/') return 0; /* the vDSO */
  for (int k = 0; k < i->dlpi_phnum; k++) {
    const ElfW(Phdr) *p = &i->dlpi_phdr[k];
    if (p->p_type == PT_LOAD && p->p_flags & PF_X)
      fprintf(out, "%lx %lx %lx %s\n", (unsigned long)(i->dlpi_addr + p->p_vaddr),
              (unsigned long)(i->dlpi_addr + p->p_vaddr + p->p_memsz), (unsigned long)i->dlpi_addr, name);
  }
  return 0;
}

/* Writes "lo hi bias path" lines and waits until the tables are there. HBTEST_DIR has: modules (written here), the
 * FIFO go (a byte: ready), region. */
static int test_get_tables(void) {
  const char *dir = getenv("HBTEST_DIR");
  char path[4096], byte;
  if (!dir) return 0;
  snprintf(path, sizeof path, "%s/modules.tmp", dir);
  FILE *f = fopen(path, "w");
  if (!f) return 0;
  dl_iterate_phdr(test_tell, f);
  char vdso[4096];
  unsigned long v = getauxval(AT_SYSINFO_EHDR);
  if (v) { /* the vDSO is no file: leave a copy */
    snprintf(vdso, sizeof vdso, "%s/vdso", dir);
    FILE *o = fopen(vdso, "w");
    if (o) {
      fwrite((void *)v, 1, 8192, o);
      fclose(o);
      fprintf(f, "%lx %lx %lx %s\n", v, v + 8192, v, vdso);
    }
  }
  fclose(f);
  char final[4096];
  snprintf(final, sizeof final, "%s/modules", dir);
  if (rename(path, final)) return 0;
  snprintf(path, sizeof path, "%s/go", dir);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, &byte, 1);
  close(fd);
  if (n != 1) return 0;
  snprintf(path, sizeof path, "%s/region", dir);
  fd = open(path, O_RDONLY | O_CLOEXEC);
  struct stat st;
  if (fd < 0 || fstat(fd, &st)) return 0;
  void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
  close(fd);
  return p != MAP_FAILED && hb_tables_open(&test_tables, p, (uint64_t)st.st_size);
}

extern void *__libc_stack_end;

/* The main thread's stack as the agent knows it. */
static struct hb_range test_main_stack(void) {
  uintptr_t hi = (uintptr_t)__libc_stack_end + 64;
  return (struct hb_range){hi - (64u << 20), hi};
}

static struct hb_unwind test_unwind(struct hb_rules *rules) {
  return (struct hb_unwind){.base = test_tables.base, .modules = hb_modules_adopt(&test_tables, 0, 1), .rules = rules,
                            .stacks = {test_main_stack()}};
}

#endif
