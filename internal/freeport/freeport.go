// Package freeport finds free loopback ports: for programs that tests start, and for tests that need an address without a server.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports are below the range of outgoing connections on Linux and macOS, so that no outgoing connection takes a port before its program
// listens on it.
const (
	first = 10_000
	count = 10_000
)

// held has a UDP socket for each port that was found, on the port number plus holds. The sockets stay open until the process ends: another
// test binary that cannot open the same socket does not use the port.
var held struct {
	sync.Mutex
	sockets []net.PacketConn
}

const holds = 30_000

// Find returns a port that no program listens on. The ports at the given distances above it are free, too. No other call, of any process,
// returns the same port while this process runs.
func Find(distances ...int) (int, error) {
	for range 100 {
		port := first + rand.N(count) //nolint:gosec // a port is no secret
		socket, err := net.ListenPacket("udp4", address(port+holds))
		if err != nil {
			continue
		}
		if !free(port, distances) {
			_ = socket.Close()
			continue
		}
		held.Lock()
		defer held.Unlock()
		held.sockets = append(held.sockets, socket)
		return port, nil
	}
	return 0, errors.New("freeport: found no free loopback port from 10000 to 19999")
}

// Address returns 127.0.0.1 with a port of Find, for a test or a benchmark.
func Address(t interface {
	Helper()
	Fatal(args ...any)
}) string {
	t.Helper()
	port, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	return address(port)
}

func free(port int, distances []int) bool {
	for _, d := range append([]int{0}, distances...) {
		l, err := net.Listen("tcp4", address(port+d))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
