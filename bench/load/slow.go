package load

import (
	"context"
	"io"
	"net"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
)

// slowKinds are the kinds of slow clients. A client that the server disconnects connects again.
var slowKinds = []string{
	"idle",   // sends nothing
	"header", // sends a byte of its header each second
	"body",   // sends a byte of its body each second
	"unread", // requests a long response and does not read it
}

// slowOptions describe slow clients.
type slowOptions struct {
	Addr    string
	Clients int    // a quarter of each kind
	Pass    string // sent with requests for the origin
	Upload  string // a path whose origin reads bodies to their end
	Long    string // a path with a response that is longer than the socket buffers
}

// SlowReport is the result of slow clients.
type SlowReport struct {
	Held     int          `json:"held"`      // at the end
	Least    int          `json:"least"`     // at any time since all were connected
	SentAway table.Causes `json:"sent_away"` // disconnected by the server, by kind
	Failed   table.Causes `json:"failed"`    // connections that could not be made
}

// unreadTime is the time after which a client abandons its unread response. The client cannot notice that the server has
// closed the connection, since it does not read.
const unreadTime = 40 * time.Second

// slowClients keeps its clients connected while run runs.
type slowClients struct {
	o     slowOptions
	ready chan struct{} // closed when all are connected for the first time
	table.Counts
	report SlowReport
}

func newSlowClients(o slowOptions) *slowClients {
	return &slowClients{o: o, ready: make(chan struct{}), report: SlowReport{SentAway: table.Causes{}, Failed: table.Causes{}}}
}

// run holds the connections until ctx ends. Each needs a file descriptor here and one or two in the server.
func (c *slowClients) run(ctx context.Context) SlowReport {
	var all sync.WaitGroup
	for i := range c.o.Clients {
		all.Go(func() {
			kind := slowKinds[i%len(slowKinds)]
			for ctx.Err() == nil {
				began := time.Now()
				if err := c.hold(ctx, kind); err != nil && ctx.Err() == nil {
					c.Note(c.report.Failed, kind+": "+cause(err), 1)
				}
				rig.Sleep(ctx, time.Until(began.Add(time.Second)))
			}
		})
	}
	all.Wait()
	return c.report
}

// count adds n connected clients.
func (c *slowClients) count(n int) {
	c.Lock()
	defer c.Unlock()
	r := &c.report
	r.Held += n
	select {
	case <-c.ready:
		r.Least = min(r.Least, r.Held)
	default:
		if r.Held == c.o.Clients {
			r.Least = r.Held
			close(c.ready)
		}
	}
}

// dial connects. The connection is closed by hangUp, or when ctx ends.
func dial(ctx context.Context, d net.Dialer, addr string) (c net.Conn, hangUp func(), err error) {
	d.Timeout = 10 * time.Second
	if c, err = d.DialContext(ctx, "tcp", addr); err != nil {
		return nil, nil, err
	}
	unblock := context.AfterFunc(ctx, func() { c.Close() })
	return c, func() { unblock(); c.Close() }, nil
}

// hold connects and holds the connection until the server closes it. It returns an error if it could not connect.
func (c *slowClients) hold(ctx context.Context, kind string) error {
	conn, hangUp, err := dial(ctx, net.Dialer{}, c.o.Addr)
	if err != nil {
		return err
	}
	defer hangUp()
	common := " HTTP/1.1\r\nHost: " + c.o.Addr + "\r\nAccept: application/json\r\n"
	pass := "X-Waiting-Room-Pass: " + c.o.Pass + "\r\n"
	opening := map[string]string{
		"header": "GET /" + common + "X-Slow: ",
		"body":   "POST " + c.o.Upload + common + pass + "Content-Length: 1000000\r\n\r\n",
		"unread": "GET " + c.o.Long + common + pass + "\r\n",
	}[kind]
	if kind == "unread" {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10) // the server has to wait sooner
	}
	if _, err := io.WriteString(conn, opening); err != nil {
		return err
	}
	c.count(1)
	if kind == "unread" {
		rig.Sleep(ctx, unreadTime)
	} else {
		c.drip(conn, kind != "idle")
	}
	if ctx.Err() == nil { // else the client was held until the end
		c.count(-1)
		c.Note(c.report.SentAway, kind, 1)
	}
	return nil
}

// drip returns when the server closes the connection or responds. Until then it sends a byte each second, if so asked.
func (c *slowClients) drip(conn net.Conn, sends bool) {
	var b [1]byte
	for {
		if conn.SetReadDeadline(time.Now().Add(time.Second)) != nil {
			return
		}
		_, err := conn.Read(b[:])
		if e, ok := err.(net.Error); !ok || !e.Timeout() { //nolint:errorlint // as net returns it
			return
		}
		if sends {
			if _, err := conn.Write([]byte{'x'}); err != nil {
				return
			}
		}
	}
}
