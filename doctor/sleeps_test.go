package doctor

// sleeps_test.go: what doctor knows of calls that can sleep is whole: POSIX's list of cancellation points, every variant of
// them that the C library here exports, and nothing that it has misspelt.

import (
	"debug/elf"
	"slices"
	"strings"
	"testing"

	"github.com/hbtrace/hbtrace/hooks"
)

// cancellationPoints are the functions that POSIX.1-2017 (XSH 2.9.5.2) requires or allows to be cancellation points
// and that can sleep, and Linux's own, from pthreads(7) and the C library's manual.
var cancellationPoints = strings.Fields(`
accept accept4 aio_suspend clock_nanosleep close closedir cnd_timedwait cnd_wait connect copy_file_range creat
epoll_pwait epoll_pwait2 epoll_wait fclose fcntl fdatasync fflush fgetc fgets flock fopen fprintf fputc fputs fread freopen fscanf fsync fwrite
getaddrinfo getc getchar getdelim gethostbyaddr gethostbyname getline getnameinfo getpwnam getpwnam_r getpwuid getpwuid_r getrandom
ioctl lockf mq_receive mq_send mq_timedreceive mq_timedsend msgrcv msgsnd msync mtx_lock mtx_timedlock nanosleep open openat
pause pclose poll posix_fallocate ppoll pread preadv preadv2 printf pselect pthread_barrier_wait pthread_clockjoin_np
pthread_cond_clockwait pthread_cond_timedwait pthread_cond_wait pthread_join pthread_mutex_clocklock pthread_mutex_lock
pthread_mutex_timedlock pthread_rwlock_clockrdlock pthread_rwlock_clockwrlock pthread_rwlock_rdlock pthread_rwlock_timedrdlock
pthread_rwlock_timedwrlock pthread_rwlock_wrlock pthread_spin_lock pthread_timedjoin_np putc putchar puts pwrite pwritev pwritev2
read readdir readv recv recvfrom recvmmsg recvmsg scanf select sem_clockwait sem_timedwait sem_wait semop semtimedop send sendfile
sendmmsg sendmsg sendto sigpause sigsuspend sigtimedwait sigwait sigwaitinfo sleep splice sync sync_file_range syncfs system tcdrain tee
thrd_join thrd_sleep usleep vfork vfprintf vmsplice wait wait3 wait4 waitid waitpid write writev`)

// tooMany are left out on purpose: in nearly every program, and what they wait for is the write or read inside.
var tooMany = map[string]bool{"printf": true, "fprintf": true, "vfprintf": true, "vprintf": true, "readdir": true, "closedir": true}

func libcExports(t *testing.T) map[string]bool {
	t.Helper()
	for _, path := range []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6", "/usr/lib/libc.so.6"} {
		file, err := elf.Open(path)
		if err != nil {
			continue
		}
		defer file.Close()
		symbols, err := file.DynamicSymbols()
		if err != nil {
			t.Fatal(err)
		}
		exports := map[string]bool{}
		for _, s := range symbols {
			if k := elf.ST_TYPE(s.Info); s.Section != elf.SHN_UNDEF && (k == elf.STT_FUNC || k == elf.STT_GNU_IFUNC) {
				exports[s.Name] = true
			}
		}
		return exports
	}
	t.Skip("needs glibc's libc.so.6")
	return nil
}

func known(name string) bool {
	if blocking[name] != "" || tooMany[name] {
		return true
	}
	return slices.ContainsFunc(hooks.Table, func(h hooks.Info) bool { return h.Name == name && !h.Go() })
}

func TestSleepersAreKnown(t *testing.T) {
	exports := libcExports(t)
	for _, name := range cancellationPoints {
		if !known(name) {
			t.Errorf("%s can sleep; it is neither hooked nor in blocking", name)
		}
		if !exports[name] {
			t.Logf("%s: not in this C library", name)
		}
		for _, variant := range []string{name + "64", name + "64v2", "__" + name + "_chk", "__" + name + "64_chk", name + "_unlocked", "__" + name + "_unlocked_chk",
			"__" + name, "__libc_" + name, "__isoc99_" + name, "__" + name + "_2", "__" + name + "64_2"} {
			// what begins with two underscores and ends in nothing is libc's own name for it, which programs do not use
			if exports[variant] && !tooMany[name] && !known(variant) && !strings.HasPrefix(variant, "__libc_") && variant != "__"+name {
				t.Errorf("%s, of %s, can sleep; it is neither hooked nor in blocking", variant, name)
			}
		}
	}
	for name := range blocking {
		if !exports[name] && !strings.Contains(name, "io_") && !strings.HasPrefix(name, "res_") {
			t.Errorf("blocking names %s, which this C library does not have: misspelt?", name)
		}
	}
	for _, h := range hooks.Table {
		if h.Go() {
			continue
		}
		if h.Class == hooks.ClassCall && h.Version != "syscall" && !exports[h.Name] {
			t.Logf("hook %s: not in this C library", h.Name)
		}
		if blocking[h.Name] != "" {
			t.Errorf("%s is hooked: blocking need not know it", h.Name)
		}
	}
}
