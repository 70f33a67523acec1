package api

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/short"
)

// A request whose body never arrives must not keep its connection, whether a handler reads the body or not.
func TestServer_EndsConnectionWithoutBody(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	b := newBench(t, func(o *Options) { o.Limits.Idle = time.Second })
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	server := httptest.NewServer(b.handler)
	t.Cleanup(server.Close)
	for _, row := range []struct {
		request, headers string
		status           int
	}{
		{"POST /v1/groups", "", 408},
		{"POST /v1/groups/" + id + "/jobs", "Idempotency-Key: k\r\n", 408},
		{"POST /v1/groups/" + id + "/jobs", "", 408},
		{"POST /v1/groups/none/jobs", "", 404},
		{"POST /v1/groups", "Authorization: Bearer wrong\r\n", 401},
		{"POST /v1/nothing", "", 404},
		{"POST /metrics", "", 405},
		{"GET /healthz", "", 200},
		{"GET /v1/groups", "", 200},
	} {
		t.Run(row.request, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			headers := row.headers
			if !strings.Contains(headers, "Authorization") {
				headers += "Authorization: Bearer " + adminToken + "\r\n"
			}
			_, err = io.WriteString(conn, row.request+" HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"+headers+"\r\n{")
			if err != nil {
				t.Fatal(err)
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			all, err := io.ReadAll(conn)
			if err != nil {
				t.Fatalf("the connection stays: %v, after %q", err, all)
			}
			if !strings.HasPrefix(string(all), fmt.Sprintf("HTTP/1.1 %d ", row.status)) {
				t.Errorf("%q, want %d", all, row.status)
			}
		})
	}
}

// A response that the client does not read must not block its handler.
func TestServer_EndsUnreadResponse(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	large := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, err := w.Write(make([]byte, 64<<20)) // more than the socket's buffers hold
		ended <- err
	})
	b := newBench(t, func(o *Options) { o.Limits.Idle, o.Metrics = time.Second, large })
	server := httptest.NewServer(b.handler)
	defer server.Close()
	conn, err := net.Dial("tcp", strings.TrimPrefix(server.URL, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("64 MiB went to a client that does not read")
		}
	case <-time.After(time.Minute):
		t.Error("the handler still writes")
		server.CloseClientConnections()
	}
}
