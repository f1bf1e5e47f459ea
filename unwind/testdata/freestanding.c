/* freestanding.c: all of the C side, to be compiled as the agent is. */
#include "unwind/verify.h"

void *hb_keep_used[] = {(void *)hb_walk_table, (void *)hb_walk_verify, (void *)hb_memory_keep, (void *)hb_tables_open,
                        (void *)hb_modules_adopt, (void *)hb_cursor_hook, (void *)hb_cursor_signal, (void *)hb_stack_probe};
