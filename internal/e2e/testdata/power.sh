#!/bin/bash
# The power of a throw-away machine: a mariadbd, in a network namespace of its own
# when DIR/conf names one. What is to go wrong is a file in DIR.
#
#   power.sh DIR off|on|state|identify   what an exec outlet calls
#   power.sh DIR guard PID               takes the machine away once process PID is gone
set -u
dir=$1
. "$dir/conf" # netns outer link datadir socket bind port keep

# Its first thread may be a zombie while another still writes and holds the locks of its
# files; and a zombie may vanish at any moment, so that its state is read once.
alive() {
	[ -s "$dir/pid" ] || return 1
	local proc state tasks
	proc=/proc/$(<"$dir/pid")
	state=$(grep -s '^State:' "$proc/status") || return 1
	tasks=("$proc"/task/*)
	[ ${#tasks[@]} -gt 1 ] || [[ $state != *Z* ]]
}
count() { echo x >>"$dir/$1.count"; }
linked() {
	if [ -z "$netns" ]; then [ -e "$dir/relay" ]; else ip -n "$netns" -o link show dev "$link" | grep -q '[<,]UP[,>]'; fi
}
feed() { # up or down
	if [ -n "$netns" ]; then ip -n "$netns" link set dev "$link" "$1"; elif [ "$1" = up ]; then touch "$dir/relay"; else rm -f "$dir/relay"; fi
}
pull() { # no byte leaves once the link is down: neither FIN nor RST
	feed down
	if alive; then kill -KILL "$(<"$dir/pid")"; fi
	while alive; do sleep 0.01; done
}
boot() {
	# What is planted is executed at each start, before the server greets anyone.
	cat "$dir/base.sql" >"$dir/init.sql"
	[ ! -e "$dir/plant.sql" ] || cat "$dir/plant.sql" >>"$dir/init.sql"
	in=()
	[ -z "$netns" ] || in=(ip netns exec "$netns")
	if [ -n "$keep" ]; then # what the last kills left, before any recovery
		n=$(wc -l <"$dir/on.count")
		rm -rf "$dir/left.$((n - 3))"
		cp -a "$datadir" "$dir/left.$n"
	fi
	mkdir -p "$dir/tmp" # of its own: a server removes the temporary tables of others when it starts
	setsid "${in[@]}" mariadbd --no-defaults --datadir="$datadir" --tmpdir="$dir/tmp" --socket="$socket" --pid-file="$dir/own.pid" \
		--bind-address="$bind" --port="$port" --init-file="$dir/init.sql" --innodb-use-native-aio=OFF --innodb-log-file-size=10M \
		--loose-innodb-log-file-buffering=ON \
		--innodb-buffer-pool-size=32M --key-buffer-size=1M --aria-pagecache-buffer-size=1M --performance-schema=OFF \
		--skip-name-resolve --innodb-buffer-pool-dump-at-shutdown=OFF --innodb-buffer-pool-load-at-startup=OFF \
		--table-open-cache=200 --max-connections=300 --user="$(id -un)" >>"$dir/log" 2>&1 </dev/null 9>&- &
	echo $! >"$dir/pid"
}

# A command whose plugpull was killed may still be at work when the next one comes.
case $2 in on | off) exec 9>"$dir/busy" && flock 9 ;; esac

case $2 in
off)
	count off
	if [ -e "$dir/off-fails" ]; then echo "no answer from the relay" >&2; exit 1; fi
	[ ! -e "$dir/slow" ] || sleep 0.3
	if [ -e "$dir/off-late" ]; then # it says off, and the supply holds on for a while
		echo off >"$dir/says"
		(sleep 1.6; pull) </dev/null >/dev/null 2>&1 9>&- &
	elif [ ! -e "$dir/off-ignored" ]; then
		pull
	fi
	if [ -e "$dir/meddled" ]; then # somebody else gives the power back
		(sleep 0.4; rm -f "$dir/meddled"; feed up; boot) </dev/null >/dev/null 2>&1 9>&- &
	fi
	;;
on)
	count on
	if [ -e "$dir/on-fails" ]; then echo "fuse blown" >&2; exit 1; fi
	[ ! -e "$dir/slow" ] || sleep 0.3
	rm -f "$dir/says"
	n=$(wc -l <"$dir/on.count")
	# on.N: a script that changes something when the power comes for the Nth time.
	[ ! -e "$dir/on.$n" ] || . "$dir/on.$n"
	feed up
	[ -e "$dir/dead" ] || alive || boot
	;;
state)
	if [ -e "$dir/says-always" ]; then cat "$dir/says-always"; exit; fi
	if [ -e "$dir/says" ]; then cat "$dir/says"; exit; fi
	if [ -e "$dir/dead" ]; then linked && echo on || echo off; exit; fi
	case $(linked && echo l)$(alive && echo a) in la) echo on ;; "") echo off ;; *) echo pending ;; esac
	;;
identify) [ ! -e "$dir/says-nothing" ] || exit 3; echo "throw-away machine $dir" ;;
guard)
	tail --pid="$3" -f /dev/null
	[ -z "$netns" ] || ip netns pids "$netns" | xargs -r kill -KILL
	pull
	if [ -n "$netns" ]; then ip link del "$outer"; ip netns del "$netns"; fi
	;;
esac
