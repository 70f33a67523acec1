package rig

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
	"sync"
	"time"
)

// PageBytes is the length of the page that the site sends for a plain request.
const PageBytes = 1024

var page = []byte(strings.Repeat("x", PageBytes))

// Serve serves HTTP on a loopback port until the end of the run and returns the address.
func (r *Run) Serve(handler http.HandlerFunc) string {
	ln := Must(net.Listen("tcp", "127.0.0.1:0"))
	server, served := &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, make(chan struct{})
	go func() {
		_ = server.Serve(ln) // returns after Close
		close(served)
	}()
	r.Cleanup(func() { _ = server.Close(); <-served })
	return ln.Addr().String()
}

// Accept calls serve for every connection to a loopback port until the end of the run, and returns the address. Connections
// are closed when serve returns.
func (r *Run) Accept(serve func(net.Conn)) string {
	ln := Must(net.Listen("tcp", "127.0.0.1:0"))
	var serving sync.WaitGroup
	var open sync.Map
	serving.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			open.Store(c, nil)
			serving.Go(func() {
				defer open.Delete(c)
				defer c.Close()
				serve(c)
			})
		}
	})
	r.Cleanup(func() {
		_ = ln.Close()
		open.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		serving.Wait()
	})
	return ln.Addr().String()
}

// Site is an origin. It sends the length and the hash of a body, as many bytes as ?bytes=N asks for, or a page; it echoes
// what comes over upgraded connections, and ends the session of a visitor who asks for /bye.
func Site(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.EqualFold(r.Header.Get("Upgrade"), "websocket"):
		echo(w)
	case r.Method == http.MethodPost:
		sum := fnv.New64a()
		if n, err := io.Copy(sum, r.Body); err == nil { // else the client has gone
			fmt.Fprintf(w, "%d %s", n, hex.EncodeToString(sum.Sum(nil)))
		}
	case r.URL.Path == "/bye":
		w.Header().Set("X-Waiting-Room-Command", "revoke")
	case r.URL.Query().Has("bytes"):
		n, err := strconv.ParseInt(r.URL.Query().Get("bytes"), 10, 64)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
		_, _ = io.CopyN(w, endless{}, n) // a client may leave
	default:
		_, _ = w.Write(page)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// echo sends every byte back, as a WebSocket echo server looks to a proxy.
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
	_, _ = io.Copy(conn, io.MultiReader(io.LimitReader(buf, int64(buf.Reader.Buffered())), conn)) // until one side closes
}

// Upgrade makes a connection to addr and upgrades it.
func Upgrade(addr, path, pass string, timeout time.Duration) (net.Conn, error) {
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
