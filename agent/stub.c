//go:build ignore

/* stub.c: an empty object for 32-bit programs: their loader finds something that it can load and stays silent,
 * and they run unrecorded. */
__attribute__((visibility("default"))) const char hb_stub[] = "hbtrace: this word size is not recorded";
