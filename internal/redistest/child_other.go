//go:build !linux

package redistest

import "syscall"

// childAttr shields the server from a Ctrl-C in the terminal, so that MainNoLeaks stops it. Only Linux can kill the server together
// with a killed test binary.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
