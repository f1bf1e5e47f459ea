/* memory.h: what a thread keeps of its stacks of Python: scratch space for the walk (stack.h) and the words of a
 * record (names.h). */
#ifndef HB_PYTHON_MEMORY_H
#define HB_PYTHON_MEMORY_H

#include "segment/layout.h"

#define HB_PY_ROOM 90 /* HB_HOLD_FRAMES */

struct hb_py_frame {
  uint64_t code, instr; /* instr: an address from 3.11 on, else an index */
  uint64_t at;          /* of the frame itself; 0: a mark, with the number of frames left out in instr */
  uint64_t anchor;      /* of its run; 0 unknown */
};

/* What a thread notes of the GIL while it holds the GIL's mutex (hooks/gil.h). */
enum { HB_GIL_TOOK = 1, HB_GIL_DROPPED };
struct hb_py_gil {
  uint64_t began;      /* stamp since when it wants it; 0: it does not */
  uint32_t owner;      /* tid that had it then */
  uint32_t pending;    /* HB_GIL_*: what there is to record */
  uint32_t releaser;   /* uid */
  uint32_t waiting;    /* threads, when it dropped it */
  uint64_t release_ns; /* when it was dropped, by the releaser or by this thread */
  uint64_t taken_ns;   /* when this thread had taken it; 0 unknown */
  uint64_t debt_ns;
};

/* A thread's, untouched until its first stack of Python. */
struct hb_py_local {
  uint32_t n, total; /* frames in f; in all */
  uint32_t bad;      /* the chain ended in memory that holds no frame */
  uint32_t words;    /* at the end of room */
  struct hb_py_gil gil;
  struct hb_py_frame f[HB_PY_FRAMES];
  uint64_t room[HB_PY_ROOM + HB_PY_FRAMES]; /* in front of the words, what follows them in a record (hb_put_two) */
  uint64_t record[HB_MAX_RECORD / 8];           /* a CODE record in the making */
};
_Static_assert(sizeof(struct hb_py_local) <= 16 << 10, "the agent's memory per thread that runs Python");

#endif
