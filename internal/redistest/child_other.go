//go:build !linux

package redistest

import "syscall"

// childAttr keeps a Ctrl-C in the terminal from the server, so that Main ends it. Only Linux can end it with a test
// binary that is killed.
func childAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
