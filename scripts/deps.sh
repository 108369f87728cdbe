#!/bin/bash
# Says which programs the tests against a real server and the tests for root need,
# and installs them where it can (root, apt-get). Never fails: a test whose program
# is missing says so when it skips. Does nothing and is quick when all is there.
set -uo pipefail
PATH="$PATH:/usr/sbin:/sbin:/lib/nut:/usr/lib/nagios/plugins"

# program  Debian package  what needs it
needs=(
	"mariadbd            mariadb-server-core  tests against a real server, make demo"
	"mariadb-install-db  mariadb-server-core  tests against a real server, make demo"
	"my_print_defaults   mariadb-client-core  mariadb-install-db"
	"mkfs.ext4           e2fsprogs            tests of the loop bench (and root)"
	"mkfs.xfs            xfsprogs             tests of the loop bench (and root)"
	"mkfs.btrfs          btrfs-progs          tests of the loop bench (and root)"
	"mariadb-slap        mariadb-client       make bench (the comparison with it)"
	"snmpd               snmpd                tests of the SNMP driver against an independent agent"
	"snmpget             snmp                 tests of the SNMP driver's own simulator"
	"ipmi_sim            openipmi             tests of the IPMI driver against an independent BMC"
	"ipmitool            ipmitool             tests of the IPMI driver's own simulator"
	"powermand           powerman             tests of the powerman bridge against its own daemon"
	"upsd                nut-server           tests of the NUT bridge against its own server"
	"upsc                nut-client           tests of the NUT bridge against its own server"
	"pg_ctlcluster       postgresql           tests of plugpull check against PostgreSQL"
	"sshd                openssh-server       tests of plugpull check over SSH against OpenSSH"
	"negate              monitoring-plugins-basic  tests of plugpull check as a monitoring plugin"
	"check_nrpe          nagios-nrpe-plugin  tests of plugpull check through NRPE"
	"nrpe                nagios-nrpe-server  tests of plugpull check through NRPE"
	"curl                curl                 tests of the HTTP driver's own simulators"
	"redfishtool         redfishtool          tests of the Redfish driver's own simulator"
	"ip                  iproute2             tests with a network namespace (and root)"
	"git                 git                  the version in make build"
)

packages() { # of the programs that are missing
	local program package rest
	for need in "${needs[@]}"; do
		read -r program package rest <<<"$need"
		command -v "$program" >/dev/null || echo "$package"
	done | sort -u
}

say_missing() {
	local program package rest
	for need in "${needs[@]}"; do
		read -r program package rest <<<"$need"
		command -v "$program" >/dev/null || echo "deps: no $program (package $package): so skips: $rest"
	done
}

if [ "$(id -u)" -ne 0 ]; then
	echo "deps: not root: skips the tests that cut a network link or mount"
fi
missing="$(packages)"
if [ -z "$missing" ]; then
	echo "deps: everything is there"
	exit 0
fi
# One line of package names, for people and for apt-get alike.
missing="$(tr '\n' ' ' <<<"$missing")"
if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
	say_missing
	echo "deps: install with: apt-get install --no-install-recommends $missing"
	exit 0
fi
echo "deps: installing $missing"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
# shellcheck disable=SC2086 # the names are words on purpose
if ! { apt-get update && apt-get install -y --no-install-recommends $missing; } >"$log" 2>&1 </dev/null; then
	echo "deps: apt-get failed:"
	tail -n 5 "$log"
fi
say_missing
exit 0
