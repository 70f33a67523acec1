// Package site is an origin that does what the plain ones of a comparison do not: it reads bodies, sends long answers
// and upgrades connections.
package site

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// page is what a plain request gets.
var page = []byte(strings.Repeat("x", 1024))

// Site is a server on a loopback port of its own.
type Site struct {
	Addr   string
	server *http.Server
	served chan struct{}
}

// Start listens.
func Start() (*Site, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &Site{Addr: ln.Addr().String(), server: &http.Server{Handler: http.HandlerFunc(answer), ReadHeaderTimeout: time.Minute}, served: make(chan struct{})}
	go func() {
		_ = s.server.Serve(ln) // it ends by Close
		close(s.served)
	}()
	return s, nil
}

// Close ends it, and all connections that were not upgraded.
func (s *Site) Close() {
	_ = s.server.Close()
	<-s.served
}

// answer reads any body to its end and tells its length and digest; ?bytes=N gets an answer of that length, an upgrade
// an echo, and everything else a page of 1 KB.
func answer(w http.ResponseWriter, r *http.Request) {
	if strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		echo(w)
		return
	}
	if r.Method == http.MethodPost {
		sum := fnv.New64a()
		n, err := io.Copy(sum, r.Body)
		if err != nil {
			return // the client has gone
		}
		fmt.Fprintf(w, "%d %s", n, hex.EncodeToString(sum.Sum(nil)))
		return
	}
	n, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
	if err != nil {
		_, _ = w.Write(page)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	_, _ = io.CopyN(w, endless{}, n) // a client may leave
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// echo sends back what comes, byte for byte, which is what an echo of frames looks like to a proxy.
func echo(w http.ResponseWriter) {
	conn, buf, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"); err != nil {
		return
	}
	_, _ = io.Copy(conn, io.MultiReader(io.LimitReader(buf, int64(buf.Reader.Buffered())), conn)) // until one side ends it
}

// Shake upgrades a connection as a client, through whatever is at addr.
func Shake(addr, path, pass string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", addr, timeout)
	if err != nil {
		return nil, err
	}
	if err := conn.SetDeadline(time.Now().Add(timeout)); err != nil {
		return nil, err
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nX-Waiting-Room-Pass: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", path, addr, pass)
	resp, err := http.ReadResponse(bufio.NewReaderSize(conn, 1), nil)
	if err == nil && resp.StatusCode != http.StatusSwitchingProtocols {
		err = fmt.Errorf("upgrade: status %d", resp.StatusCode)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
