package sqltest

import "syscall"

// dieWithTest makes the kernel kill a server when the test binary dies, however it dies.
func dieWithTest(a *syscall.SysProcAttr) { a.Pdeathsig = syscall.SIGKILL }
