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
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/pace"
	"github.com/anteroom/anteroom/gateway/proxy"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/short"
	"github.com/anteroom/anteroom/token"
)

func openStreams(b *bench) float64 { return testutil.ToFloat64(b.metrics.Streams) }

func TestEvents_RefuseLargeBody(t *testing.T) {
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

// readUntil reads lines until one has that beginning, and returns the rest of that line.
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

// A client that reconnects may have left a dead connection, so the newest streams of a ticket stay. The gateway asks the client of
// the oldest to wait before it reconnects, and so it does with all clients when it stops.
func TestEvents_NewestStreamsOfTicketStay(t *testing.T) {
	b, _ := one(t, Room{ID: "sale", Policy: policy(0)})
	token := b.call("POST /.waiting-room/sale/tickets").field("token")
	_, first := listenTo(t, b.addr, token)
	var rest []*bufio.Reader
	for range 4 {
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
	eventually(t, "the oldest is forgotten", func() bool { return openStreams(b) == 4 })
	b.stop()
	for _, r := range rest {
		after(r, 2100)
	}
	if n := openStreams(b); n != 0 {
		t.Errorf("%v streams are left", n)
	}
}

// A stream counts as polls: for twenty minutes, twice absence, no visitor polls, and all with a stream are admitted in order.
func TestEvents_KeepThePlaceWithoutPolls(t *testing.T) {
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
		events *ticketEvents
		said   []byte
		over   bool
	}
	all := make([]*listener, crowd)
	for i := range all {
		us.Add(1000)
		id := admission.ID(randomID())
		s, refusal, err := line.Join(t.Context(), admission.Arrival{ID: id, Interval: pace.LongestFirst})
		if err != nil || refusal != admission.Granted {
			t.Fatal(refusal, err)
		}
		if s.State == admission.Active {
			continue // admitted by the burst
		}
		k := s.Ticket
		all[i] = &listener{events: &ticketEvents{g: g, room: r, waiting: token.Waiting{
			ID: token.ID(id), Room: "sale", Order: k.Order, Seen: k.Seen, Hold: int64(k.Hold / time.Second), Epoch: k.Epoch, Fence: k.Fence, IssuedAt: us.Load() / 1e6, Expires: us.Load()/1e6 + day,
		}}}
	}
	began := us.Load()
	for us.Load() < began+int64(20*time.Minute/time.Microsecond) {
		us.Add(500_000)
		now := time.Duration(us.Load()-began) * time.Microsecond
		tick()
		for i, l := range all {
			if l == nil || l.over || i == absent {
				continue
			}
			if due, _ := l.events.Due(now); !due {
				continue
			}
			var more bool
			l.said, _, more = l.events.AppendEvents(t.Context(), l.said, now)
			l.over = !more
		}
	}
	last := ""
	for i, l := range all {
		if l == nil {
			continue
		}
		said := string(l.said)
		_, admitted, in := strings.Cut(said, "event: admitted\n")
		if in == (i == absent) {
			t.Fatalf("number %d: admitted %t, received\n%s", i, in, said)
		}
		if i == absent {
			continue
		}
		_, at, _ := strings.Cut(admitted, `"admitted_at":"`)
		if at = at[:len(answer.TimeLayout)]; at < last {
			t.Errorf("number %d was admitted at %s, the next one at %s", i, at, last)
		}
		last = at
		checkNeverGrows(t, i, said)
	}
}

var shownPosition = regexp.MustCompile(`"position":(\d+)`)

func checkNeverGrows(t *testing.T, who int, said string) {
	t.Helper()
	last := int64(math.MaxInt64)
	for _, m := range shownPosition.FindAllStringSubmatch(said, -1) {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		if n > last {
			t.Errorf("number %d was shown position %d and then %d", who, last, n)
		}
		last = n
	}
}
