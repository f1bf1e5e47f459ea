/* main.c: a program whose work is in a library, since the recorder takes qemu's file for the program's own. */
int p_main(void);
int main(void) { return p_main(); }
