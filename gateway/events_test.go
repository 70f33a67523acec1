package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
	"github.com/anteroom/anteroom/token"
)

// slowEnd is a connection whose client makes its closing take a while.
type slowEnd struct {
	net.Conn
	closing, release chan struct{}
}

func (c *slowEnd) Close() error {
	close(c.closing)
	<-c.release
	return nil
}

func TestStreamThatEndsSlowlyHoldsUpNoOther(t *testing.T) {
	s := newStreams(&Gateway{metrics: NewMetrics(nil, "")}, 2)
	if p := s.reserve([16]byte{}); p != nil {
		t.Fatal(p.Code)
	}
	c := &slowEnd{closing: make(chan struct{}), release: make(chan struct{})}
	ended, reserved := make(chan struct{}), make(chan *answer.Problem, 1)
	go func() {
		s.end(&stream{conn: c})
		close(ended)
	}()
	<-c.closing
	go func() { reserved <- s.reserve([16]byte{}) }()
	select {
	case p := <-reserved:
		if p != nil {
			t.Errorf("no place for another stream: %s", p.Code)
		}
	case <-time.After(time.Minute):
		t.Error("another stream waits for one that ends")
	}
	close(c.release)
	<-ended
}

func TestEventsReadTheRequestToItsEnd(t *testing.T) {
	s := newSite(t, "shop", nil)
	b := start(t, redistest.Client(t), redistest.Prefix(t), Options{
		Origins: []proxy.Config{originAt("shop", s.URL)}, Rooms: []Room{{ID: "sale", Policy: policy(0)}}, MaxStreams: 1,
	})
	token := "X-Waiting-Room-Token: " + b.call("POST /.waiting-room/sale/tickets").field("token")
	b.call("GET /.waiting-room/sale/events", token, "", strings.Repeat("x", bodyMax+1)).code(t, 413)
}

// listenTo opens an event stream and reads it until the first event.
func listenTo(t *testing.T, addr, token string) (net.Conn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(60 * time.Second))
	fmt.Fprintf(c, "GET /.waiting-room/sale/events HTTP/1.1\r\nHost: shop.test\r\nX-Waiting-Room-Token: %s\r\n\r\n", token)
	r := bufio.NewReader(c)
	readUntil(t, r, "data: ")
	return c, r
}

// readUntil reads lines to the first with that beginning, and gives what follows it.
func readUntil(t *testing.T, r *bufio.Reader, beginning string) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("no line %q: %v", beginning, err)
		}
		if rest, ok := strings.CutPrefix(line, beginning); ok {
			return strings.TrimSpace(rest)
		}
	}
}

func (s *streams) counted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, st := range s.open {
		for ; st != nil; st = st.older {
			n++
		}
	}
	if n != s.count {
		return -1
	}
	return n
}

// Who has come back may have left a connection that nobody knows to be dead: the newest stay. The oldest is asked to take its
// time, and who is left when a process ends likewise.
func TestNewestStreamsOfATicketStay(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	token := b.call("POST /.waiting-room/sale/tickets").field("token")
	_, first := listenTo(t, b.addr, token)
	var rest []*bufio.Reader
	for range streamsOfOne {
		_, r := listenTo(t, b.addr, token)
		rest = append(rest, r)
	}
	after := func(r *bufio.Reader, most int) {
		t.Helper()
		ms, err := strconv.Atoi(readUntil(t, r, "retry: "))
		if err != nil || ms < 1000 || ms > most {
			t.Errorf("asked to be back after %d ms (%v), want 1000 to %d", ms, err, most)
		}
		if more, err := io.ReadAll(r); err != nil || len(bytes.TrimSpace(more)) > 0 {
			t.Errorf("the stream goes on: %q, %v", more, err)
		}
	}
	after(first, 31_000)
	eventually(t, "the oldest is forgotten", func() bool { return b.streams.counted() == streamsOfOne })
	b.stop()
	for _, r := range rest {
		after(r, 2100)
	}
	if n := b.streams.counted(); n != 0 {
		t.Errorf("%d streams are left", n)
	}
}

// Clients that do not read are passed over, then ended: more of them than there are workers delay nobody.
func TestClientsThatDoNotReadDelayNobody(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	room := b.state.Load().byID["sale"]
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	ticket := b.call("POST /.waiting-room/sale/tickets").field("token")
	const deaf = streamWorkers + 20
	for times := 1; ; times++ {
		var full []net.Conn
		for range deaf {
			client, err := net.Dial("tcp", ln.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			server, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			server.(*net.TCPConn).SetWriteBuffer(4096)
			client.(*net.TCPConn).SetReadBuffer(4096)
			eventually(t, "the connection is full", func() bool {
				server.SetWriteDeadline(time.Now().Add(5 * time.Millisecond))
				for err == nil {
					_, err = server.Write(make([]byte, 64<<10))
				}
				err = nil
				return !takes(server)
			})
			full = append(full, server)
		}
		for i, server := range full {
			if p := b.streams.reserve([16]byte{}); p != nil {
				t.Fatal(p.Code)
			}
			b.streams.add(&stream{conn: server, room: room, waiting: token.Waiting{ID: token.ID{byte(i), byte(i >> 8), 7}, Room: "sale", Order: int64(i + 1)}})
		}
		reads, _ := listenTo(t, b.addr, ticket)
		n := b.streams.counted()
		eventually(t, "only the one who reads is left", func() bool { return b.streams.counted() == 1 })
		if n >= deaf/2 { // had it waited for workers, most were ended by now
			return
		}
		if times == 3 { // on a busy machine it may be so once
			t.Fatalf("%d streams of %d are open when one was told: it waited for those who do not read", n, deaf+1)
		}
		reads.Close()
		eventually(t, "nobody is left", func() bool { return b.streams.counted() == 0 })
	}
}

// Nobody polls for twenty minutes, which is twice absence: all are let in who have a stream, in their order.
func TestStreamAloneKeepsThePlace(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	var us atomic.Int64
	us.Store(1_780_000_000_000_000)
	core, err := admission.New(admission.Options{
		Client: redistest.Client(t), Prefix: redistest.Prefix(t), Timeout: 5 * time.Second, Log: slog.New(slog.DiscardHandler), Now: us.Load,
	})
	if err != nil {
		t.Fatal(err)
	}
	p := policy(1)
	p.Rate = 40 // one in 25 s
	g, err := New(Options{
		Core: core, Ring: testRing(t), IDKey: testSecret, Log: slog.New(slog.DiscardHandler),
		Origins: []proxy.Config{originAt("shop", "http://127.0.0.1:1")}, Rooms: []Room{{ID: "sale", Policy: p, PollBudget: 20000}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.life.end()
	r := g.state.Load().byID["sale"]
	line := r.queue
	tick := func() {
		t.Helper()
		if err := line.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	tick()
	const crowd, absent = 40, 7
	type listener struct {
		st   *stream
		far  net.Conn
		said strings.Builder
		over bool
	}
	all := make([]*listener, crowd)
	var heard sync.WaitGroup
	for i := range all {
		us.Add(1000)
		id := admission.ID(randomID())
		s, refusal, err := line.Join(t.Context(), admission.Arrival{ID: id, Interval: pace.LongestFirst})
		if err != nil || refusal != admission.Granted {
			t.Fatal(refusal, err)
		}
		if s.State == admission.Active {
			continue // the burst
		}
		near, far := net.Pipe()
		k := s.Ticket
		l := &listener{far: far, st: &stream{conn: near, room: r, waiting: token.Waiting{
			ID: token.ID(id), Room: "sale", Order: k.Order, Seen: k.Seen, Hold: int64(k.Hold / time.Second), Epoch: k.Epoch, Fence: k.Fence, IssuedAt: us.Load() / 1e6, Expires: us.Load()/1e6 + day,
		}}}
		all[i] = l
		heard.Go(func() { _, _ = io.Copy(&l.said, far) })
	}
	began := us.Load()
	for us.Load() < began+int64(20*time.Minute/time.Microsecond) {
		us.Add(500_000)
		now := time.Duration(us.Load()-began) * time.Microsecond
		tick()
		for i, l := range all {
			if l == nil || l.over || i == absent || !l.st.due(now) {
				continue
			}
			if l.over = !l.st.step(t.Context(), g, now); l.over {
				l.st.conn.Close()
			}
		}
	}
	for _, l := range all {
		if l != nil {
			l.st.conn.Close()
			l.far.Close()
		}
	}
	heard.Wait()
	last := ""
	for i, l := range all {
		if l == nil {
			continue
		}
		said := l.said.String()
		_, admitted, in := strings.Cut(said, "event: admitted\n")
		if in == (i == absent) {
			t.Fatalf("number %d: admitted %t, was told\n%s", i, in, said)
		}
		if i == absent {
			continue
		}
		_, at, _ := strings.Cut(admitted, `"admitted_at":"`)
		if at = at[:len(answer.TimeLayout)]; at < last {
			t.Errorf("number %d was let in at %s, the one behind at %s", i, at, last)
		}
		last = at
		checkNeverGrows(t, i, said)
	}
}

var toldPosition = regexp.MustCompile(`"position":(\d+)`)

func checkNeverGrows(t *testing.T, who int, said string) {
	t.Helper()
	last := int64(math.MaxInt64)
	for _, m := range toldPosition.FindAllStringSubmatch(said, -1) {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		if n > last {
			t.Errorf("number %d was told position %d and then %d", who, last, n)
		}
		last = n
	}
}

// The streams of one client address have a limit of their own, which a reload changes; others get theirs.
func TestStreams_OfOneAddressAreLimited(t *testing.T) {
	s := newStreams(&Gateway{metrics: NewMetrics(nil, "")}, 100)
	s.limitEach(2)
	one, other := [16]byte{1}, [16]byte{2}
	for i, row := range []struct {
		address [16]byte
		want    *answer.Problem
	}{{one, nil}, {one, nil}, {one, answer.StreamsFull}, {other, nil}} {
		if p := s.reserve(row.address); p != row.want {
			t.Errorf("stream %d: %v, want %v", i, p, row.want)
		}
	}
	c, _ := net.Pipe()
	s.end(&stream{conn: c, address: one})
	if p := s.reserve(one); p != nil {
		t.Errorf("after one has ended: %s", p.Code)
	}
	s.limitEach(3)
	if p := s.reserve(one); p != nil {
		t.Errorf("after the limit was raised: %s", p.Code)
	}
	s.limitEach(0)
	for range 10 {
		if p := s.reserve(one); p != nil {
			t.Errorf("without a limit: %s", p.Code)
		}
	}
}
