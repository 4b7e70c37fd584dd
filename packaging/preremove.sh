#!/bin/sh
# Before the package is removed; not before it is upgraded, which Debian calls
# "upgrade" and RPM 1.
set -e
case "$1" in
remove | purge | 0)
	if [ -d /run/systemd/system ]; then
		systemctl disable --now chancery.service || true # it may be gone
	fi
	;;
esac
