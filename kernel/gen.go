package kernel

//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -no-global-types -type off -target bpfel -output-stem zsched -cflags "-O2 -g -Wall -Werror -I.." sched sched.bpf.c
//go:generate go run ./gen
