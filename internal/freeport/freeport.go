// Package freeport finds loopback ports for programs that tests start, and for addresses at which nothing is to listen.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports are below the range of outgoing connections on Linux and macOS, so that none of these takes a port while no program listens
// on it.
const (
	first = 10_000
	count = 10_000
)

// held are UDP sockets, each on the port above a found one by the distance of holds. They are open until the process ends, so that other
// test binaries do not find the same ports meanwhile.
var held struct {
	sync.Mutex
	sockets []net.PacketConn
}

const holds = 30_000

// Find returns a port on which no program listens, nor on the ports at the given distances above it. No other call returns the port while
// this process runs.
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
