/* chain_nofp.c: the tower without frame pointers. */
#define CHAIN nofp_
#include "chain.h"
