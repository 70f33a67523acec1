package api

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
)

// serve serves the API on a real socket and returns its address.
func (b *bench) serve() string {
	b.t.Helper()
	served := httptest.NewServer(b.handler)
	b.t.Cleanup(served.Close)
	return served.Listener.Addr().String()
}

// dial sends the head of an upload whose body is chunked, and leaves the body to the test.
func dial(t *testing.T, addr, path string) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(c, "POST %s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nTransfer-Encoding: chunked\r\n\r\n", path, adminToken)
	return c
}

func chunk(c net.Conn, text string) { fmt.Fprintf(c, "%x\r\n%s\r\n", len(text), text) }

func answered(t *testing.T, c net.Conn) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// An upload that takes longer than Idle continues while bytes arrive; a stalled upload is refused.
func TestUpload_MayBeSlowButNotStall(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	b := newBench(t, func(o *Options) { o.Limits.Idle = 3 * time.Second })
	addr := b.serve()
	stalled := dial(t, addr, "/v1/bulk?tenant=acme&type=mail&id=stalled")
	chunk(stalled, lines(1))
	slow := dial(t, addr, "/v1/bulk?tenant=acme&type=mail&id=slow")
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for i := range 15 {
		<-tick.C
		chunk(slow, fmt.Sprintf("{\"payload\":%d}\n", i))
	}
	chunk(slow, "")
	if status, body := answered(t, slow); status != 201 || !strings.Contains(body, `"accepted":15`) {
		t.Errorf("slow: %d %s", status, body)
	}
	if status, body := answered(t, stalled); status != 408 || !strings.Contains(body, `"code":"body_idle"`) || !strings.Contains(body, "id=stalled") {
		t.Errorf("stalled: %d %s", status, body)
	}
	// The deadline of one request does not affect the next one on its connection.
	fmt.Fprintf(slow, "GET /v1/groups/slow HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", adminToken)
	if status, _ := answered(t, slow); status != 200 {
		t.Errorf("the next request on the connection: %d", status)
	}
}

func TestUpload_ContinuesAfterReset(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := dial(t, b.serve(), "/v1/bulk?tenant=acme&type=mail&id=g")
	text := lines(3000)
	chunk(c, text[:len(text)/2])
	for deadline := time.Now().Add(20 * time.Second); ; {
		if g, err := b.store.Group(t.Context(), "g"); err == nil && g.Total > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing came in")
		}
	}
	if err := c.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	c.Close()
	w := b.ask("POST", "/v1/bulk?tenant=acme&type=mail&id=g", text)
	want(t, w, 201)
	if got := pick(decoded(t, w), "total", "accepted", "duplicates"); got != "total=3000 accepted=3000 duplicates=0" {
		t.Error(got)
	}
}

// The store is killed and restarted during an upload: the upload waits, then continues by itself.
func TestUpload_SurvivesStoreRestart(t *testing.T) {
	t.Parallel()
	private := redistest.Server(t, "--appendonly", "yes", "--appendfsync", "always")
	b := newBenchOn(t, private.Client(), store.Defaults())
	c := dial(t, b.serve(), "/v1/bulk?tenant=acme&type=mail&id=g")
	text := lines(4000)
	chunk(c, text[:len(text)/2])
	for deadline := time.Now().Add(20 * time.Second); ; {
		if g, err := b.store.Group(t.Context(), "g"); err == nil && g.Total >= 1000 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing came in")
		}
	}
	private.Kill()
	chunk(c, text[len(text)/2:])
	private.Restart()
	chunk(c, "")
	if status, body := answered(t, c); status != 201 || !strings.Contains(body, `"accepted":4000,"duplicates":0`) {
		t.Errorf("%d %s", status, body)
	}
}

// A client that writes its whole body before it reads receives the response of an upload that was refused at its first line.
func TestUpload_DrainsRefusedBody(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+b.serve()+"/v1/groups/none/jobs", strings.NewReader(strings.Repeat(lines(100), 1000)))
	if err != nil {
		t.Fatal(err)
	}
	setHeaders(r, []string{key + "k"})
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 404 {
		t.Error(resp.Status)
	}
}

// A response that fails in the middle does not look complete to the client.
func TestResults_BreakConnectionOnError(t *testing.T) {
	t.Parallel()
	private := redistest.Server(t)
	b := newBenchOn(t, private.Client(), store.Defaults())
	id := b.create(`{"tenant":"acme","type":"mail"}`)
	want(t, b.ask("POST", "/v1/groups/"+id+"/jobs", lines(800)), 200)
	result := ophttp.Marshal(strings.Repeat("x", 40<<10))
	b.run(func(store.Leased) store.Ack { return store.Ack{Verdict: store.Done, Result: result} })
	resp := open(t, "http://"+b.serve()+"/v1/groups/"+id+"/results")
	body := bufio.NewReader(resp.Body)
	if _, err := body.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	private.Kill()
	if n, err := io.Copy(io.Discard, body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d bytes, then %v", n, err)
	}
}
