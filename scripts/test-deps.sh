#!/usr/bin/env bash
# Installs, with the system's package manager, what the tests need and this machine lacks. What cannot be
# installed is named: the tests that need it skip and say so. Never fails for want of a package.
set -euo pipefail

# command or file, then the package that has it under apt, dnf, apk, pacman ("-" = none there)
needs='
gcc                gcc                 gcc             gcc             gcc
g++                g++                 gcc-c++         g++             gcc
aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu gcc-aarch64-linux-gnu - aarch64-linux-gnu-gcc
/usr/aarch64-linux-gnu/include/pthread.h libc6-dev-arm64-cross - - aarch64-linux-gnu-glibc
qemu-aarch64       qemu-user           qemu-user       qemu-aarch64    qemu-user
musl-gcc           musl-tools          -               -               musl
rustc              rustc               rust            rust            rust
redis-server       redis-server        redis           redis           redis
redis-benchmark    redis-tools         redis           redis           redis
memcached          memcached           memcached       memcached       memcached
memcaslap          libmemcached-tools  -               -               libmemcached
nginx              nginx               nginx           nginx           nginx
wrk                wrk                 -               wrk             -
sqlite3            sqlite3             sqlite          sqlite          sqlite
python3            python3             python3         python3         python
strace             strace              strace          strace          strace
lttng-sessiond     lttng-tools         lttng-tools     -               lttng-tools
lttng-gen-tp       liblttng-ust-dev    lttng-ust-devel lttng-ust-dev   lttng-ust
node               nodejs              nodejs          nodejs          nodejs
npm                npm                 npm             npm             npm
chromium           chromium            chromium        chromium        chromium
xz                 xz-utils            xz              xz              xz
dwz                dwz                 dwz             dwz             dwz
debuginfod         debuginfod          elfutils-debuginfod -            debuginfod
debuginfod-find    debuginfod          elfutils-debuginfod-client -     elfutils
/usr/lib32/crt1.o  libc6-dev-i386      glibc-devel.i686 -              lib32-glibc
/usr/lib/gcc/x86_64-linux-gnu/12/32/libgcc.a         lib32gcc-12-dev       - - -
/usr/lib/x86_64-linux-gnu/libjemalloc.so.2           libjemalloc2          - - -
/usr/lib/x86_64-linux-gnu/libtcmalloc_minimal.so.4   libtcmalloc-minimal4  - - -
'

PATH="$PATH:/usr/sbin:/sbin:$HOME/.cargo/bin"
have() {
  case $1 in
    /*) [ -e "$1" ] ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
  esac
}
say() { printf '%s\n' "$*" >&2; }

column=0
for candidate in apt-get dnf apk pacman; do
  column=$((column + 1))
  if have "$candidate"; then manager=$candidate; break; fi
done

missing_packages=() missing_commands=()
while read -r command packages; do
  [ -n "$command" ] || continue
  have "$command" && continue
  missing_commands+=("$command")
  if [ -n "${manager:-}" ]; then
    package=$(printf '%s\n' "$packages" | awk -v n="$column" '{ print $n }')
    [ "$package" = - ] || missing_packages+=("$package")
  fi
done <<<"$needs"

if [ ${#missing_commands[@]} -eq 0 ]; then exit 0; fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
  if have sudo && sudo -n true 2>/dev/null; then as_root=sudo; else as_root=no; fi
fi

# An installed server must not start one of its own: tests start theirs, on ports of their choice.
install() {
  case $manager in
    apt-get)
      $as_root env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y --no-install-recommends "$@" ;;
    dnf) $as_root dnf install -y "$@" ;;
    apk) $as_root apk add "$@" ;;
    pacman) $as_root pacman -S --noconfirm --needed "$@" ;;
  esac
}

if [ -z "${manager:-}" ]; then
  say "test-deps: no package manager that is known here"
elif [ "$as_root" = no ]; then
  say "test-deps: not root and no password-free sudo; to install what is missing, as root:"
  say "  $manager install ${missing_packages[*]}"
elif [ ${#missing_packages[@]} -gt 0 ]; then
  say "test-deps: installing ${missing_packages[*]}"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  [ "$manager" != apt-get ] || $as_root apt-get update -q >"$log" 2>&1 || say "test-deps: apt-get update failed: $(tail -n 1 "$log")"
  if ! install "${missing_packages[@]}" >"$log" 2>&1; then
    # one that is unknown must not keep the others away
    for package in "${missing_packages[@]}"; do
      install "$package" >"$log" 2>&1 || say "test-deps: $package: $(tail -n 1 "$log")"
    done
  fi
fi

hash -r
for command in "${missing_commands[@]}"; do
  have "$command" || say "test-deps: without $command: the tests that need it will skip"
done
