package e2e

import (
	"os/exec"
	"syscall"
)

// dieWithParent lets the kernel end the process when this one ends without
// running its cleanups, as a test does that timed out.
func dieWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
