package redistest

import "syscall"

// childAttr lets the kernel end the server when the test binary dies in whatever way.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
