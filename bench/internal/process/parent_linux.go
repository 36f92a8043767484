package process

import (
	"os/exec"
	"syscall"
)

// endWithParent has the kernel end a child when this process dies, also one
// that is stopped.
func endWithParent(c *exec.Cmd) {
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
