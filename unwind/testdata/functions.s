# functions.s: one function per shape of call frame information.
	.text
	.globl plain
	.type plain,@function
plain:	.cfi_startproc
	subq $40,%rsp
	.cfi_def_cfa_offset 48
	nop
	addq $40,%rsp
	.cfi_def_cfa_offset 8
	ret
	.cfi_endproc
	.size plain,.-plain

	.p2align 4
	.globl framed
	.type framed,@function
framed:	.cfi_startproc
	pushq %rbp
	.cfi_def_cfa_offset 16
	.cfi_offset %rbp,-16
	movq %rsp,%rbp
	.cfi_def_cfa_register %rbp
	.cfi_remember_state
	popq %rbp
	.cfi_restore %rbp
	.cfi_def_cfa %rsp,8
	ret
	.cfi_restore_state
	nop
	popq %rbp
	.cfi_def_cfa %rsp,8
	ret
	.cfi_endproc
	.size framed,.-framed

	.p2align 4
	.globl realigned
	.type realigned,@function
realigned: .cfi_startproc
	leaq 8(%rsp),%r10
	.cfi_def_cfa %r10,0
	andq $-32,%rsp
	pushq -8(%r10)
	pushq %rbp
	movq %rsp,%rbp
	.cfi_escape 0x10,0x6,0x2,0x76,0x0
	pushq %r10
	.cfi_escape 0xf,0x3,0x76,0x78,0x6
	nop
	popq %r10
	.cfi_def_cfa %r10,0
	popq %rbp
	leaq -8(%r10),%rsp
	.cfi_def_cfa %rsp,8
	ret
	.cfi_endproc
	.size realigned,.-realigned

	.p2align 4
	.globl indexed
	.type indexed,@function
indexed: .cfi_startproc
	nop
	# CFA = *(rsp + 8 * r9 + 8) + 8
	.cfi_escape 0x0f,0x0a,0x77,0x08,0x79,0x00,0x38,0x1e,0x22,0x06,0x23,0x08
	nop
	.cfi_def_cfa %rsp,8
	.cfi_register %rbp,%r11
	nop
	.cfi_escape 0x10,0x6,0x3,0x77,0xa0,0x1
	nop
	.cfi_escape 0x10,0x6,0x3,0x73,0xa0,0x1
	nop
	ret
	.cfi_endproc
	.size indexed,.-indexed

	.p2align 4
	.globl linked
	.type linked,@function
linked:	.cfi_startproc
	popq %rdi
	.cfi_adjust_cfa_offset -8
	.cfi_register %rip,%rdi
	nop
	pushq %rdi
	.cfi_adjust_cfa_offset 8
	.cfi_offset %rip,-8
	ret
	.cfi_endproc
	.size linked,.-linked

	.p2align 4
	.globl outermost
	.type outermost,@function
outermost: .cfi_startproc
	.cfi_undefined %rip
	hlt
	.cfi_endproc
	.size outermost,.-outermost

	.p2align 4
	.globl restorer
	.type restorer,@function
	.cfi_startproc
	.cfi_signal_frame
	.cfi_escape 0x0f,0x04,0x77,0xa0,0x01,0x06
	nop
restorer: movq $15,%rax
	syscall
	.cfi_endproc
	.size restorer,.-restorer

	.p2align 6
	.globl far
	.type far,@function
	.skip 64,0xcc
far:	.cfi_startproc
	nop
	.cfi_def_cfa_offset 100000
	nop
	.cfi_val_offset %rsp,8
	nop
	ret
	.cfi_endproc
	.size far,.-far
	.section .note.GNU-stack,"",@progbits
