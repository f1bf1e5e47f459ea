/* sample.h: CPU samples: a signal of the recorder's lands on a thread that used CPU time.
 *
 * The signal is SIGWINCH, which is ignored by default: it harms no process that is met before or after its handler
 * is in place. Those that do not come from the recorder go on to the runtime's own handler (hook.h, hb_go_signal). */
#ifndef HB_GO_SAMPLE_H
#define HB_GO_SAMPLE_H

#include "goruntime/entry.h"
#include "goruntime/stack.h"

#endif
