package suite

import (
	"crypto/sha1" //nolint:gosec // RFC 6455 demands it
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/anteroom/anteroom/test/recorder"
)

// Origin is a site that records its requests, and echoes a line of a WebSocket connection.
type Origin struct {
	Address string
	recorder.Recorder
}

// StartOrigin starts a site for the length of the test.
func StartOrigin(t testing.TB) *Origin {
	t.Helper()
	o := &Origin{}
	server := httptest.NewServer(o)
	t.Cleanup(server.Close)
	o.Address = strings.TrimPrefix(server.URL, "http://")
	return o
}

func (o *Origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	o.Record(w, r)
	if r.Header.Get("Upgrade") == "websocket" {
		echo(w, r.Header.Get("Sec-WebSocket-Key"))
		return
	}
	_, _ = io.WriteString(w, "the site")
}

// echo sends back the first line of an upgraded connection.
func echo(w http.ResponseWriter, key string) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // RFC 6455, section 4.2.2
	_, _ = buffered.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: " + base64.StdEncoding.EncodeToString(sum[:]) + "\r\n\r\n")
	_ = buffered.Flush()
	if line, err := buffered.ReadString('\n'); err == nil {
		_, _ = buffered.WriteString(line)
		_ = buffered.Flush()
	}
}

// Count returns the number of requests so far.
func (o *Origin) Count() int { return len(o.Requests()) }
