package suite

import (
	"crypto/sha1" //nolint:gosec // RFC 6455 demands it
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Received is a request as the origin received it.
type Received struct {
	Method, URI, Host, Body string
	Header                  http.Header
}

// Origin is a site that records its requests, and echoes a line of a WebSocket connection.
type Origin struct {
	Address string

	mu       sync.Mutex
	received []Received
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
	body, err := io.ReadAll(r.Body)
	if err != nil {
		body = append(body, " (cut)"...)
	}
	o.mu.Lock()
	o.received = append(o.received, Received{r.Method, r.RequestURI, r.Host, string(body), r.Header.Clone()})
	o.mu.Unlock()
	w.Header().Set("X-Origin", "yes")
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

// Requests returns all requests so far.
func (o *Origin) Requests() []Received {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.received)
}

// Count returns the number of requests so far.
func (o *Origin) Count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.received)
}
