//go:build ignore

/* dormant.c: the one translation unit of the dormant agent, a preloaded object that waits to be attached to. */
#include "agent/dormant.h"
