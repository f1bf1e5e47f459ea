#!/bin/sh
# session.sh: one LTTng-UST session with a ring for each of 12 cores, in a mount namespace of its own, around one run
# of the writer; what is kept goes to $1/out. $1 is a directory with writer, getcpu.so and orders.
# LTTng-UST makes as many rings as the kernel says there can be processors: the file that says so is covered.
# $2 sub-buffers of 4 KiB for each core.
set -eu
dir=$1 subbufs=$2
echo 0-11 >"$dir/possible"
mount --bind "$dir/possible" /sys/devices/system/cpu/possible
mkdir -p "$dir/run" /var/run/lttng
mount --bind "$dir/run" /var/run/lttng
export LTTNG_HOME="$dir/home" LTTNG_UST_REGISTER_TIMEOUT=-1
mkdir -p "$LTTNG_HOME"
lttng-sessiond --no-kernel --quiet --daemonize --pidfile "$dir/sessiond.pid"
trap 'kill "$(cat "$dir/sessiond.pid")"' EXIT
quietly() { "$@" >"$dir/log" 2>&1 || { cat "$dir/log" >&2; exit 1; }; }
quietly lttng --no-sessiond create replay --snapshot --output="$dir/out"
quietly lttng --no-sessiond enable-channel --userspace --overwrite --subbuf-size=4096 --num-subbuf="$subbufs" --buffers-uid ring
quietly lttng --no-sessiond enable-event --userspace --channel=ring hbtrace_replay:record
quietly lttng --no-sessiond start
LTTNG_UST_GETCPU_PLUGIN="$dir/getcpu.so" "$dir/writer" <"$dir/orders" >"$dir/measured"
quietly lttng --no-sessiond stop
quietly lttng --no-sessiond snapshot record
quietly lttng --no-sessiond destroy replay
