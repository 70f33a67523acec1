//go:build !linux

package sse

import (
	"net"
	"time"
)

func setUserTimeout(net.Conn, time.Duration) {}
