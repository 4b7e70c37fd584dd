#!/bin/sh
# After the package is installed or upgraded. It starts nothing that did not run:
# first the files are put into /etc/chancery.
set -e
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart chancery.service
fi
