package slow

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/anteroom/anteroom/bench/wire"
)

// Kind is a way of being slow.
type Kind int

// The ways. A client that the server sends away comes back at once.
const (
	Idle   Kind = iota // connects and says nothing
	Header             // sends a byte of its header each second
	Body               // sends a byte of its body each second
	Unread             // asks for a long answer and does not read it
	kinds
)

func (k Kind) String() string {
	return [...]string{"idle", "header", "body", "unread"}[k]
}

// Options says whom to annoy, and how.
type Options struct {
	Addr    *net.TCPAddr
	Clients int    // a quarter of each kind
	Pass    string // sent with what is to reach the origin
	Upload  string // a path whose origin reads bodies to their end
	Long    string // a path with an answer of more than the sockets hold
}

// Report is what became of them.
type Report struct {
	Held     int            `json:"held"`      // at the end
	Least    int            `json:"least"`     // at any time since Ready
	SentAway map[string]int `json:"sent_away"` // by the server, of each kind
	Failed   map[string]int `json:"failed"`    // connections that could not be made
}

// turnover is how long an unread answer is left alone: a server that gives up on it cannot tell its client so.
const turnover = 40 * time.Second

type client struct {
	kind   Kind
	socket wire.Socket
	since  time.Time
	asked  bool
}

// Crowd keeps its clients connected while Run runs.
type Crowd struct {
	o       Options
	clients []client
	opening [kinds][]byte
	ready   chan struct{}
	report  Report
}

// New prepares a crowd. Each client needs a file descriptor here and one or two in the server.
func New(o Options) *Crowd {
	c := &Crowd{o: o, clients: make([]client, o.Clients), ready: make(chan struct{})}
	c.report.SentAway, c.report.Failed = map[string]int{}, map[string]int{}
	for i := range c.clients {
		c.clients[i] = client{kind: Kind(i) % kinds, socket: -1}
	}
	end := " HTTP/1.1\r\nHost: " + o.Addr.String() + "\r\nAccept: application/json\r\n"
	pass := "X-Waiting-Room-Pass: " + o.Pass + "\r\n"
	c.opening[Header] = []byte("GET /" + end + "X-Slow: ")
	c.opening[Body] = []byte("POST " + o.Upload + end + pass + "Content-Length: 1000000\r\n\r\n")
	c.opening[Unread] = []byte("GET " + o.Long + end + pass + "\r\n")
	return c
}

// Ready is closed when all are connected for the first time.
func (c *Crowd) Ready() <-chan struct{} { return c.ready }

// tenths of a second are the turns in which the clients do something, each once a second.
const tenths = 10

// Run holds the connections until ctx ends.
func (c *Crowd) Run(ctx context.Context) Report {
	tick := time.NewTicker(time.Second / tenths)
	defer tick.Stop()
	defer func() {
		for i := range c.clients {
			c.hangUp(&c.clients[i])
		}
	}()
	held := func() (n int) {
		for i := range c.clients {
			if c.clients[i].asked {
				n++
			}
		}
		return n
	}
	ready := false
	for turn := 0; ; turn++ {
		for i := turn % tenths; i < len(c.clients); i += tenths {
			c.tend(&c.clients[i], time.Now())
		}
		c.report.Held = held()
		switch {
		case !ready && c.report.Held == len(c.clients):
			ready = true
			c.report.Least = c.report.Held
			close(c.ready)
		case ready:
			c.report.Least = min(c.report.Least, c.report.Held)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return c.report
		}
	}
}

func (c *Crowd) hangUp(s *client) {
	if s.socket >= 0 {
		s.socket.Close()
	}
	s.socket, s.asked = -1, false
}

// tend does what a client does in a second. A connection that was found closed is made anew in the same turn.
func (c *Crowd) tend(s *client, now time.Time) {
	if s.asked && c.lost(s, now) {
		c.report.SentAway[s.kind.String()]++
		c.hangUp(s)
	}
	if s.socket < 0 {
		var err error
		if s.socket, err = wire.Dial(c.o.Addr); err != nil {
			c.failed(s, err)
			return
		}
		s.since = now
		if s.kind == Unread { // the less this side takes in, the sooner the server has to wait
			_ = unix.SetsockoptInt(int(s.socket), unix.SOL_SOCKET, unix.SO_RCVBUF, 4<<10)
		}
	}
	if !s.asked {
		if !s.socket.Connected() {
			if now.Sub(s.since) > 10*time.Second {
				c.failed(s, errors.New("no connection within 10 s"))
			}
			return
		}
		if err := s.socket.Err(); err != nil {
			c.failed(s, err)
			return
		}
		if _, err := s.socket.Write(c.opening[s.kind]); err != nil {
			c.failed(s, err)
			return
		}
		s.asked = true
		return
	}
	if s.kind == Header || s.kind == Body {
		if _, err := s.socket.Write([]byte{'x'}); err != nil {
			c.report.SentAway[s.kind.String()]++
			c.hangUp(s)
		}
	}
}

func (c *Crowd) lost(s *client, now time.Time) bool {
	if s.kind == Unread {
		return now.Sub(s.since) > turnover
	}
	return s.socket.Stale()
}

func (c *Crowd) failed(s *client, err error) {
	c.report.Failed[fmt.Sprintf("%s: %s", s.kind, wire.Cause(err))]++
	c.hangUp(s)
}
