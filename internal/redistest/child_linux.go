package redistest

import "syscall"

// childAttr makes the kernel kill the server when the test binary dies, however it dies.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
