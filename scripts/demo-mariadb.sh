#!/bin/bash
# Shows the whole experiment on a throw-away MariaDB server of this machine: stream,
# kill, restart, verify; then the same with a loss planted, which must be caught.
# Needs no root. Everything it makes lives in a temporary folder and is removed.
set -euo pipefail
PATH="$PATH:/usr/sbin:/sbin"
cd "$(dirname "$0")/.."
plugpull="$PWD/bin/plugpull"

if ! command -v mariadbd >/dev/null || ! command -v mariadb-install-db >/dev/null; then
	echo "demo: there is no mariadbd on this machine. On Debian or Ubuntu: apt-get install mariadb-server-core mariadb-client-core" >&2
	exit 1
fi

dir="$(mktemp -d)"
server=
stop_server() { # as a power cut would: without a farewell
	if [ -n "$server" ]; then
		kill -KILL "$server" 2>/dev/null || true
		wait "$server" 2>/dev/null || true
		server=
	fi
}
trap 'stop_server; rm -rf "$dir"' EXIT

as_root=()
[ "$(id -u)" -ne 0 ] || as_root=(--user=root)
port=
start_server() {
	mariadbd --no-defaults "${as_root[@]}" --datadir="$dir/data" --socket="$dir/s" --port="$port" \
		--bind-address=127.0.0.1 --innodb-use-native-aio=OFF --loose-innodb-log-file-buffering=ON --innodb-buffer-pool-size=32M --performance-schema=OFF \
		--pid-file="$dir/pid" >>"$dir/log" 2>&1 </dev/null &
	server=$!
}
sql() { mariadb --no-defaults --socket="$dir/s" --user=root "$@"; }
say() { printf '\n== %s\n' "$*"; }
show() { printf '$ %s\n' "plugpull ${*//$dir\//}"; }
# expect CODE ARGS…: runs plugpull, shows the command, and fails on another exit code.
expect() {
	local want="$1" code=0
	shift
	show "$@"
	"$plugpull" "$@" || code=$?
	echo "(exit code $code)"
	if [ "$code" -ne "$want" ]; then
		echo "demo: expected exit code $want" >&2
		tail -n 20 "$dir/log" >&2
		exit 1
	fi
}

say "a throw-away MariaDB server"
mariadb-install-db --no-defaults "${as_root[@]}" --datadir="$dir/data" --skip-test-db \
	--auth-root-authentication-method=normal >"$dir/install.log" 2>&1 || { cat "$dir/install.log" >&2; exit 1; }
for port in $(shuf -i 20000-39999 -n 20); do
	start_server
	for _ in $(seq 200); do
		if ! kill -0 "$server" 2>/dev/null || sql -e 'SELECT 1' >/dev/null 2>&1; then break; fi
		sleep 0.1
	done
	if sql -e 'SELECT 1' >/dev/null 2>&1; then break; fi
	stop_server
done
sql -e "CREATE USER plugpull@localhost; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP ON plugpull.* TO plugpull@localhost"
sql -N -e "SELECT CONCAT('MariaDB ', VERSION(), ', innodb_flush_log_at_trx_commit=', @@innodb_flush_log_at_trx_commit)"

dsn="mysql://plugpull@127.0.0.1:$port/plugpull"
say "stream numbered commits, and kill the server in mid-commit after 5 s"
show stream --dsn "$dsn" --ledger run.ledger
"$plugpull" stream --dsn "$dsn" --ledger "$dir/run.ledger" --silence 2s &
client=$!
sleep 5
stop_server
wait "$client"

say "start it again, and compare: a killed process loses nothing, and proves nothing of the drive"
start_server
expect 3 verify --dsn "$dsn" --ledger "$dir/run.ledger"

say "plant a loss, as a drive that ignores flushes would leave it: the newest 5 commits of stream 1 are gone"
sql plugpull -e "DELETE FROM append_1 WHERE stream = 1 ORDER BY seq DESC LIMIT 5"
expect 1 verify --dsn "$dsn" --ledger "$dir/run.ledger" --attest drive

say "done: the honest server passed, the planted loss was caught"
