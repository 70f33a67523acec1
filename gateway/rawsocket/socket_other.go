//go:build !linux

package rawsocket

import (
	"net"
	"syscall"
)

// socket is used on Linux only; elsewhere connections are used as they are.
type socket struct{}

func (s *socket) wrap(net.Conn)                      {}
func (s *socket) valid() bool                        { return false }
func (s *socket) read([]byte) (int, error)           { panic("rawsocket: no socket") }
func (s *socket) readLent(int) (*[]byte, int, error) { panic("rawsocket: no socket") }
func (s *socket) write([]byte) (int, error)          { panic("rawsocket: no socket") }
func (s *socket) turn(_, _ []byte) (n int, rest []byte, werr, err error) {
	panic("rawsocket: no socket")
}

// peek is recvfrom with MSG_PEEK.
func peek(fd uintptr, p []byte) (int, error) {
	n, _, err := syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n, err
}
