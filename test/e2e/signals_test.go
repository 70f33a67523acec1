package e2e

import "syscall"

const (
	sigterm = syscall.SIGTERM
	sighup  = syscall.SIGHUP
)
