/* names.h: frames of Python as words of a record: which function by an id, and in which native frame.
 *
 * An id is a place in the process's table of functions (hb_wiped.codes), which holds a hash of the code object's
 * address and of what it points to: addresses are used again, and then the hash differs and there is another id. A
 * CODE record, with the function's name, file and line table, is written before the first record that uses an id;
 * threads that meet a function at the same time may both write one. A full table, and code objects that make no
 * sense, give HB_PY_NO_ID. */
#ifndef HB_PYTHON_NAMES_H
#define HB_PYTHON_NAMES_H

#include "python/stack.h"

static int hb_put(struct hb_tls *t, struct hb_rec *rec, uint32_t fixed, const struct hb_frame *f, uint32_t n);
static void hb_rec_init(struct hb_rec *r, uint32_t type, uint32_t hook, uint32_t flags, uint64_t time_ns);

#define HB_PY_SENT 1ull     /* of a word in hb_wiped.codes */
#define HB_PY_TRIES 32u
#define HB_PY_NAME_BYTES 512u
#define HB_PY_FILE_BYTES 1024u
#define HB_PY_TABLE_BYTES 24576u /* of a line table; lines behind it are not known */

/* Where the characters of a string lie. 0: it is none. signal-safe */
static int hb_py_string(const struct hb_python *o, struct hb_py_pages *p, uint64_t u, uint64_t *at,
    uint64_t *length, uint32_t *kind) {
  uint64_t state;
  if (!u || !hb_py_word(p, u + 16, length) || !hb_py_field(p, u + 32, 4, &state)) return 0;
  *kind = (uint32_t)(state >> o->kind_shift) & 7;
  uint64_t compact = state >> (o->kind_shift + 3) & 1, ascii = state >> (o->kind_shift + 4) & 1;
  *at = u + (ascii ? o->ascii_bytes : o->compact_bytes);
  return compact && (*kind == 1 || *kind == 2 || *kind == 4) && !(ascii && *kind != 1) && *length < 1ull << 40;
}

/* A string into a record: how many bytes, 0 for what is none. */
static uint16_t hb_py_put_string(const struct hb_python *o, struct hb_py_pages *p, uint64_t u, char *to,
    uint32_t room, uint8_t *kind,
                                 int *cut) {
  uint64_t at, length;
  uint32_t k;
  *kind = 0;
  *cut = 0;
  if (!hb_py_string(o, p, u, &at, &length, &k)) return 0;
  if (length > room / k) *cut = 1, length = room / k;
  if (!hb_py_copy(p, to, at, (uint32_t)length * k)) return 0;
  *kind = (uint8_t)k;
  return (uint16_t)(length * k);
}

struct hb_py_code {
  uint64_t at, name, file, table;
  uint32_t first;
  uint64_t hash;
};

/* What a code object says. 0: it is none. signal-safe */
static int hb_py_code_read(const struct hb_python *o, struct hb_py_pages *p, uint64_t at, struct hb_py_code *c) {
  uint64_t type, first;
  if (!at || !hb_py_word(p, at + (o->free_threaded ? 24 : 8), &type) || (o->code_type &&
      type != o->code_type)) return 0;
  c->at = at;
  if (!hb_py_word(p, at + (o->code_qualname ? o->code_qualname : o->code_name), &c->name) || !hb_py_word(p,
      at + o->code_file, &c->file) ||
      !hb_py_word(p, at + o->code_table, &c->table) || !hb_py_field(p, at + o->code_first, 4, &first))
    return 0;
  c->first = (uint32_t)first;
  uint64_t h = at * 0x9e3779b97f4a7c15ull;
  h = (h ^ h >> 29 ^ c->name) * 0xbf58476d1ce4e5b9ull;
  h = (h ^ h >> 32 ^ c->file) * 0x94d049bb133111ebull;
  h = (h ^ h >> 29 ^ c->table ^ (uint64_t)c->first << 40) * 0x9e3779b97f4a7c15ull;
  c->hash = (h ^ h >> 32) & ~HB_PY_SENT;
  if (!c->hash) c->hash = 2;
  return 1;
}

/* Write what is known of a function. 0: some record was dropped. signal-safe, under t->busy */
static HB_NOINLINE int hb_py_announce(struct hb_tls *t, const struct hb_python *o, struct hb_py_pages *p,
    struct hb_py_local *s,
                                      const struct hb_py_code *c, uint32_t id) {
  struct hb_rec_code *r = (struct hb_rec_code *)(void *)s->record;
  char *d = (char *)(r + 1);
  uint64_t bytes = 0;
  int name_cut, file_cut;
  memset(r, 0, sizeof *r);
  hb_rec_init(&r->rec, HB_REC_CODE, 0, 0, hb_now_ns());
  r->id = id;
  r->version = o->version;
  r->first_line = (int32_t)c->first;
  r->name_bytes = hb_py_put_string(o, p, c->name, d, HB_PY_NAME_BYTES, &r->name_kind, &name_cut);
  d += (r->name_bytes + 7u) & ~7u;
  r->file_bytes = hb_py_put_string(o, p, c->file, d, HB_PY_FILE_BYTES, &r->file_kind, &file_cut);
  d += (r->file_bytes + 7u) & ~7u;
  r->cut = (uint8_t)((name_cut ? HB_CODE_NAME_CUT : 0) | (file_cut ? HB_CODE_FILE_CUT : 0));
  int known = c->table && hb_py_word(p, c->table + 16, &bytes) && bytes < 1u << 30;
  r->table_bytes = known ? (uint32_t)bytes : UINT32_MAX;
  uint32_t end = known ? bytes < HB_PY_TABLE_BYTES ? (uint32_t)bytes : HB_PY_TABLE_BYTES : 0;
  uint32_t room = (uint32_t)((char *)s->record + HB_MAX_RECORD - d) & ~7u, at = 0;
  do {
    uint32_t part = end - at < room ? end - at : room;
    if (!hb_py_copy(p, d, c->table + o->bytes_data + at, part)) {
      r->table_bytes = UINT32_MAX;
      part = 0, end = at;
    }
    r->table_at = at;
    r->table_part = (uint16_t)part;
    at += part;
    if (!hb_put(t, &r->rec, (uint32_t)(d - (char *)s->record) + ((part + 7) & ~7u), NULL, 0)) return 0;
  } while (at < end);
  return 1;
}

/* The id of a function. signal-safe, under t->busy */
static uint32_t hb_py_id(struct hb_tls *t, const struct hb_python *o, struct hb_py_pages *p, struct hb_py_local *s,
    const struct hb_py_code *c) {
  uint32_t i = (uint32_t)(c->hash >> 40);
  for (uint32_t k = 0; k < HB_PY_TRIES; k++, i++) {
    uint32_t id = i % (HB_PY_CODES - 1) + 1; /* never 0 */
    _Atomic uint64_t *e = &hb.wiped->codes[id];
    uint64_t v = hb_load_acquire(e);
    if (!v && hb_cas_seq(e, &v, c->hash)) v = c->hash;
    if ((v & ~HB_PY_SENT) != c->hash) continue;
    if (v & HB_PY_SENT) return id;
    if (!hb_py_announce(t, o, p, s, c, id)) return HB_PY_NO_ID;
    hb_store_release(e, c->hash | HB_PY_SENT);
    return id;
  }
  HB_COUNT(codes_unnamed);
  return HB_PY_NO_ID;
}

/* The word of a frame, but for its native frame. signal-safe, under t->busy */
static uint64_t hb_py_word_of(struct hb_tls *t, const struct hb_python *o, struct hb_py_pages *p,
    struct hb_py_local *s,
                              const struct hb_py_frame *f) {
  const uint64_t most = 0xfffff;
  if (!f->at) return (uint64_t)HB_PY_MARK << HB_PY_ID_SHIFT | (f->instr < most ?
      f->instr : most) << HB_PY_INSTR_SHIFT | HB_PY_UNPLACED;
  struct hb_py_code c;
  uint32_t id = HB_PY_NO_ID;
  uint64_t unit = most;
  if (hb_py_code_read(o, p, f->code, &c)) {
    id = hb_py_id(t, o, p, s, &c);
    if (o->version >= 0x30b) unit = (f->instr - (f->code + o->code_code)) / 2;
    else if (o->version == 0x30a) unit = f->instr;
    else unit = (uint64_t)((int64_t)f->instr >> 1);
  } else {
    HB_COUNT(codes_unnamed);
  }
  if (unit > most) unit = most; /* before the first instruction, too */
  return (uint64_t)id << HB_PY_ID_SHIFT | unit << HB_PY_INSTR_SHIFT | (f->at >> 3 & 0xfff) << HB_PY_CALL_SHIFT |
      HB_PY_UNPLACED;
}

/* Find the frames of Python and what they are called, before the stack's record is written: s->room ends in their
 * words, leaf first, not placed yet. signal-safe, under t->busy */
static HB_NOINLINE void hb_py_take(struct hb_tls *t, const struct hb_python *o) {
  struct hb_py_local *s = &t->local->python;
  struct hb_py_pages p;
  hb_py_pages_begin(&p, t);
  s->words = 0;
  uintptr_t ts = hb_py_thread(o, &p);
  if (!ts) return;
  hb_py_walk(o, &p, ts, s);
  if (s->bad) HB_COUNT(python_cut);
  for (uint32_t i = 0; i < s->n; i++) s->room[HB_PY_ROOM + i] = hb_py_word_of(t, o, &p, s, &s->f[i]);
  s->words = s->n;
}

HB_INLINE void hb_py_place(struct hb_py_local *s, uint32_t i, uint32_t native) {
  s->room[HB_PY_ROOM + i] = (s->room[HB_PY_ROOM + i] & ~(uint64_t)HB_PY_NATIVE) | native;
}

/* No anchors: the loops' native frames and the frames correspond one to one, counted from the root where the stack is
 * whole, since a loop that has just begun or is about to end has no frame. */
static void hb_py_place_by_code(const struct hb_python *o, const struct hb_memory *m, struct hb_py_local *s,
    int whole) {
  uint32_t k = s->n;
  if (whole && s->total == s->n) {
    for (uint32_t i = 0; i < m->depth && k; i++) {
      uint64_t pc = (m->f[i].pc & HB_PC_BITS) - (m->f[i].pc >> HB_PC_SHIFT != HB_PC_EXACT);
      if (pc - o->eval_lo < o->eval_hi - o->eval_lo) hb_py_place(s, --k, i);
    }
    return;
  }
  k = 0;
  for (uint32_t i = m->depth; i && k < s->n; i--) {
    uint64_t pc = (m->f[i - 1].pc & HB_PC_BITS) - (m->f[i - 1].pc >> HB_PC_SHIFT != HB_PC_EXACT);
    if (pc - o->eval_lo < o->eval_hi - o->eval_lo) hb_py_place(s, k++, i - 1);
  }
}

/* Say which native frames run the frames of Python: those of m, the thread's last stack, root first. A native frame
 * reaches from behind the slot that its callee returns through up to the one that it returns through itself.
 * signal-safe, under t->busy */
static HB_NOINLINE void hb_py_place_all(const struct hb_python *o, const struct hb_memory *m,
    struct hb_py_local *s, int whole) {
  if (o->version < 0x30a) {
    hb_py_place_by_code(o, m, s, whole);
    return;
  }
  uint32_t i = m->depth, k = 0;
  while (k < s->n && i) {
    uint64_t a = s->f[k].anchor, lo = m->f[i - 1].at;
    if (!a || a < lo) { /* in a frame that is not known */
      k++;
      continue;
    }
    if (i > 1 && (a >= m->f[i - 2].at || m->f[i - 1].pc >> HB_PC_SHIFT == HB_PC_MARK)) {
      i--;
      continue;
    }
    if (m->f[i - 1].pc >> HB_PC_SHIFT != HB_PC_MARK) hb_py_place(s, k, i - 1);
    k++;
  }
}

#endif
