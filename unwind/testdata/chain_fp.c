/* chain_fp.c: the tower with frame pointers. */
#define CHAIN fp_
#include "chain.h"
