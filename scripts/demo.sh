#!/bin/bash
# Shows a lying drive being caught: SQLite on the simulated drive, ten scenarios of 20 power
# cuts each. Needs nothing but the binary, writes to a temporary folder and removes it.
set -euo pipefail
cd "$(dirname "$0")/.."
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT

set -- wal-full wal-full-torn wal-transfer-torn truncate-churn-torn capacitor \
	wal-normal delete-full flush-ignored flush-late weak-capacitor shorn-write
echo "$ plugpull run $* --bench embedded --cycles 20 --seed 1"
bin/plugpull run "$@" --bench embedded --cycles 20 --seed 1 --out "$dir/runs" 2>"$dir/log" || {
	code=$?
	cat "$dir/log" >&2
	exit "$code"
}
echo "(exit code 0: every verdict is the expected one)"
