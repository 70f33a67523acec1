//go:build !linux

package rawsocket

import (
	"net"
	"syscall"
)

// socket is only of use where its system calls are known; elsewhere connections are used as they are.
type Socket struct{}

func (s *Socket) Of(net.Conn)                                            {}
func (s *Socket) Valid() bool                                            { return false }
func (s *Socket) Read([]byte) (int, error)                               { panic("proxy: no socket") }
func (s *Socket) ReadLent(int) (*[]byte, int, error)                     { panic("proxy: no socket") }
func (s *Socket) Write([]byte) (int, error)                              { panic("proxy: no socket") }
func (s *Socket) Turn(_, _ []byte) (n int, rest []byte, werr, err error) { panic("proxy: no socket") }

// peek is recvfrom with MSG_PEEK.
func peek(fd uintptr, p []byte) (int, error) {
	n, _, err := syscall.Recvfrom(int(fd), p, syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	return n, err
}
