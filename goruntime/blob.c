//go:build ignore

/* blob.c: the code that the recorder maps into Go programs. It is one position-independent image without writable
 * data: read and executed only. It begins with its configuration, which the recorder fills in before the program runs.
 *
 * The includes are the data path, bottom up:
 *
 *   ground.h  the configuration, the clock, loads from the runtime's memory
 *   put.h     records into the session's ring
 *   stack.h   stacks by frame pointers
 *   entry.h   the table of goroutines; who they are
 *   states.h  what a change of state means: waits, their ends, lives
 *   sample.h  CPU samples
 *   hook.h    how the runtime's code comes here: the only assembly
 *
 * Rules, because the hooked functions are on the runtime's innermost paths:
 * 1. Nothing allocates, blocks, or calls the runtime. Loads from the runtime's memory are of live objects only.
 * 2. A hook runs on the signal stack (m.gsignal) of its thread, where no goroutine is checked for room.
 * 3. On any doubt a hook counts and goes on: the program never sees a difference.
 * 4. While the recorder is not heard nothing is recorded (ground.h, hb_heard). */
#include "goruntime/ground.h"
#include "goruntime/put.h"
#include "goruntime/stack.h"
#include "goruntime/entry.h"
#include "goruntime/states.h"
#include "goruntime/sample.h"
#include "goruntime/hook.h"
