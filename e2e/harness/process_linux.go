package harness

import (
	"os/exec"
	"syscall"
)

// DieWithParent lets the kernel end the process when this one ends without
// running its cleanups, as a test does that timed out.
func DieWithParent(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
}
