package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// A receiver that rejects the worker's token for some seconds, as during its rotation, costs no job.
func TestBulkOutage_RejectedTokenCostsNoJob(t *testing.T) {
	t.Parallel()
	n, away := sized(500, 3000), time.Duration(sized(1, 4))*time.Second
	f := newFarm(t, "rate: {global: 1000}\nworker: {count: 50}")
	var back atomic.Bool
	f.to.answer = func(w http.ResponseWriter, _ *http.Request, _ jobRun) {
		if !back.Load() {
			http.Error(w, "who are you", http.StatusUnauthorized)
		}
	}
	w := f.worker()
	defer time.AfterFunc(away, func() { back.Store(true) }).Stop()
	w.submit("acme", "g", n)
	if g := w.completes("g"); g.Succeeded != n {
		t.Errorf("%+v, want %d jobs that succeeded", g, n)
	}
	if runs := len(f.to.of("g")); runs <= n {
		t.Errorf("%d runs of %d jobs: no token was rejected", runs, n)
	}
}

// A receiver whose port refuses connections for some seconds costs no job.
func TestBulkOutage_RefusedConnectionsCostNoJob(t *testing.T) {
	t.Parallel()
	n, away := sized(1000, 12000), time.Duration(sized(2, 15))*time.Second
	f := newFarm(t, "rate: {global: 1000}\nworker: {count: 50}")
	port := reservePort(t)
	f.to.URL = "http://" + port.addr
	w := f.worker()
	defer time.AfterFunc(away, func() { port.serve(f.to) }).Stop()
	w.submit("acme", "g", n)
	g := w.completes("g")
	if g.Succeeded != n {
		t.Errorf("%+v, want %d jobs that succeeded", g, n)
	}
	tried := 0
	for _, o := range w.results("g", n) {
		if o.Attempts > 1 {
			tried++
		}
	}
	if tried == 0 {
		t.Error("no job has met the outage")
	}
	t.Logf("%d of %d jobs met the outage", tried, n)
}

// port is an address that refuses connections until serve: the socket is bound and does not listen.
type port struct {
	t    *testing.T
	addr string
	file *os.File
}

func reservePort(t *testing.T) *port {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	p := &port{t: t, file: os.NewFile(uintptr(fd), "port")}
	t.Cleanup(func() { _ = p.file.Close() })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	p.addr = fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	return p
}

// serve listens on the address until the test has ended.
func (p *port) serve(h http.Handler) {
	var l net.Listener
	err := syscall.Listen(int(p.file.Fd()), 1024)
	if err == nil {
		l, err = net.FileListener(p.file)
	}
	if err != nil {
		p.t.Error(err)
		return
	}
	server := &http.Server{Handler: h, ReadHeaderTimeout: patience}
	p.t.Cleanup(func() { _ = server.Close() })
	go func() {
		if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			p.t.Error(err)
		}
	}()
}
