#!/bin/sh
# After the package is installed or upgraded. It starts nothing that did not run:
# first the files are put into /etc/chancery.
set -e
if command -v systemd-sysusers >/dev/null; then
	systemd-sysusers chancery.conf
fi
# The service reads the files, and other users do not. If an administrator has changed
# owner, group or mode of the directory, it stays as it is.
if getent group chancery >/dev/null && [ "$(stat -c %U:%G:%a /etc/chancery)" = root:root:755 ]; then
	chgrp chancery /etc/chancery
	chmod 2750 /etc/chancery
fi
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart chancery.service
fi
