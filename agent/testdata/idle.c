//go:build ignore
/* idle.c: an object that can be preloaded and does nothing: what delivery is tested with. */
__attribute__((visibility("default"))) int hb_idle;
