// Package visitor is a client of a gateway's visitor API: it joins a room's queue, polls, claims and leaves, requests pages
// of the site with a pass, and follows its place. It uses only what a visitor receives.
package visitor

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/valyala/fasthttp"
)

// Status is the gateway's status object, or the code of a problem.
type Status struct {
	Room         string  `json:"room"`
	State        string  `json:"state"`
	Position     int64   `json:"position"`
	Waiting      int64   `json:"waiting"`
	RefreshAfter float64 `json:"refresh_after"` // seconds
	JoinedAt     string  `json:"joined_at"`
	AdmittedAt   string  `json:"admitted_at"`
	ETA          *ETA    `json:"eta"` // nil if unknown
	Reason       string  `json:"reason"`
	Message      string  `json:"message"`
	Facts        *Facts  `json:"facts"` // nil before the first publication
	Token        string  `json:"token"`
	Pass         string  `json:"pass"`
	Code         string  `json:"code"`
}

// Facts name what the room publishes to those who wait.
type Facts struct {
	Version string `json:"version"`
	URL     string `json:"url"`
}

// ETA is an estimate of the wait, in seconds.
type ETA struct {
	Seconds float64 `json:"seconds"`
	Low     float64 `json:"low"`
	High    float64 `json:"high"`
}

// Response is the gateway's response to one request.
type Response struct {
	HTTP       int
	Room       string // X-Waiting-Room; empty if the response is the origin's
	RetryAfter time.Duration
	Status     Status // zero unless the body was JSON
}

// Credentials are the newest that one visitor received.
type Credentials struct {
	Token, Pass, Nonce string
	Key                string // the Idempotency-Key of the join, if set
	Cookies            bool   // whether they are sent as cookies, as browsers do, or in headers
}

// Options describe how to reach a room.
type Options struct {
	URLs        []string // of gateways, used in turn
	Room        string
	Connections int           // at most this many to each gateway
	Timeout     time.Duration // of one request
	Brief       bool          // decode only responses that carry a token or a pass
	NoRetry     bool          // return the error of a connection that breaks; else GET requests are sent again
}

// Client sends requests. It is safe for concurrent use.
type Client struct {
	hosts   []*fasthttp.HostClient
	roots   []string // scheme://host, to put before a path
	next    atomic.Uint64
	timeout time.Duration
	room    string
	brief   bool
	base    string // /.waiting-room/{room}
}

// New returns a client, or an error if a URL is not valid. It opens no connection.
func New(o Options) (*Client, error) {
	if len(o.URLs) == 0 {
		return nil, errors.New("no gateway URL")
	}
	c := &Client{timeout: o.Timeout, room: o.Room, brief: o.Brief, base: "/.waiting-room/" + o.Room}
	attempts := 0 // the default
	if o.NoRetry {
		attempts = 1
	}
	for _, raw := range o.URLs {
		u, err := url.Parse(raw)
		if err != nil {
			return nil, fmt.Errorf("url %q: %w", raw, err)
		}
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" {
			return nil, fmt.Errorf("url %q: want http://host:port or https://host:port, without a path", raw)
		}
		tls := u.Scheme == "https"
		addr := u.Host
		if u.Port() == "" {
			port := "80"
			if tls {
				port = "443"
			}
			addr = net.JoinHostPort(u.Hostname(), port)
		}
		c.roots = append(c.roots, u.Scheme+"://"+u.Host)
		c.hosts = append(c.hosts, &fasthttp.HostClient{
			Addr:                      addr,
			IsTLS:                     tls,
			Dial:                      func(addr string) (net.Conn, error) { return net.DialTimeout("tcp", addr, o.Timeout) },
			MaxConns:                  max(o.Connections, 1),
			MaxConnWaitTimeout:        o.Timeout,
			MaxIdleConnDuration:       20 * time.Second,
			MaxResponseBodySize:       4 << 20,
			NoDefaultUserAgentHeader:  true,
			MaxIdemponentCallAttempts: attempts,
		})
	}
	return c, nil
}

// Close closes idle connections.
func (c *Client) Close() {
	for _, h := range c.hosts {
		h.CloseIdleConnections()
	}
}

// Join requests a place with POST tickets.
func (c *Client) Join(cr *Credentials) (Response, error) {
	return c.do(fasthttp.MethodPost, c.base+"/tickets", cr, func(r *fasthttp.Request) {
		r.Header.SetContentType("application/json")
		r.SetBodyString("{}")
		if cr.Key != "" {
			r.Header.Set("Idempotency-Key", cr.Key)
		}
	})
}

// Status polls. The poll of an admitted ticket claims it.
func (c *Client) Status(cr *Credentials) (Response, error) {
	return c.do(fasthttp.MethodGet, c.base+"/status", cr, nil)
}

// Claim exchanges an admitted ticket for a pass.
func (c *Client) Claim(cr *Credentials) (Response, error) {
	return c.do(fasthttp.MethodPost, c.base+"/claim", cr, nil)
}

// Leave removes the ticket from the queue.
func (c *Client) Leave(cr *Credentials) (Response, error) {
	return c.do(fasthttp.MethodDelete, c.base+"/tickets", cr, nil)
}

// Visit requests a path of the site, as a browser does if the visitor keeps cookies, else as an API client.
func (c *Client) Visit(cr *Credentials, path string) (Response, error) {
	return c.do(fasthttp.MethodGet, path, cr, func(r *fasthttp.Request) {
		if cr.Cookies {
			r.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
			r.Header.Set("Sec-Fetch-Dest", "document")
			r.Header.Set("Sec-Fetch-Mode", "navigate")
		}
	})
}

func (c *Client) do(method, path string, cr *Credentials, prepare func(*fasthttp.Request)) (Response, error) {
	i := int(c.next.Add(1) % uint64(len(c.hosts)))
	req, resp := fasthttp.AcquireRequest(), fasthttp.AcquireResponse()
	defer fasthttp.ReleaseRequest(req)
	defer fasthttp.ReleaseResponse(resp)
	req.SetRequestURI(c.roots[i] + path)
	req.Header.SetMethod(method)
	req.Header.Set("Accept", "application/json")
	req.Header.SetUserAgent("anteroom-loadgen")
	c.authorize(req, cr, c.hosts[i].IsTLS)
	if prepare != nil {
		prepare(req)
	}
	if err := c.hosts[i].DoTimeout(req, resp, c.timeout); err != nil {
		return Response{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return c.read(resp, cr, strings.HasPrefix(path, "/.waiting-room/"))
}

// cookies returns the credentials by the names of their cookies, without a prefix.
func (c *Client) cookies(cr *Credentials) map[string]*string {
	return map[string]*string{"wr_" + c.room + "_ticket": &cr.Token, "wr_" + c.room + "_pass": &cr.Pass, "wr_" + c.room + "_nonce": &cr.Nonce}
}

// authorize adds the credentials to a request.
func (c *Client) authorize(req *fasthttp.Request, cr *Credentials, tls bool) {
	if cr.Cookies {
		prefix := ""
		if tls {
			prefix = "__Host-"
		}
		for name, v := range c.cookies(cr) {
			if *v != "" {
				req.Header.SetCookie(prefix+name, *v)
			}
		}
		return
	}
	if cr.Token != "" {
		req.Header.Set("X-Waiting-Room-Token", cr.Token)
	}
	if cr.Pass != "" {
		req.Header.Set("X-Waiting-Room-Pass", cr.Pass)
	}
}

// read reads a response and stores the newest credentials. It reads the body only if the gateway wrote it, since the origin
// may have tokens of its own.
func (c *Client) read(resp *fasthttp.Response, cr *Credentials, ours bool) (Response, error) {
	body := resp.Body()
	a := Response{
		HTTP: resp.StatusCode(),
		Room: string(resp.Header.Peek("X-Waiting-Room")),
	}
	if s, err := strconv.Atoi(string(resp.Header.Peek("Retry-After"))); err == nil && s > 0 {
		a.RetryAfter = time.Duration(s) * time.Second
	}
	for _, v := range resp.Header.Cookies() {
		var ck fasthttp.Cookie
		if ck.ParseBytes(v) != nil || len(ck.Value()) == 0 {
			continue
		}
		if v := c.cookies(cr)[strings.TrimPrefix(string(ck.Key()), "__Host-")]; v != nil {
			*v = string(ck.Value())
		}
	}
	if p := resp.Header.Peek("X-Waiting-Room-Pass"); len(p) > 0 {
		cr.Pass = string(p)
	}
	if !ours && a.Room == "" || !strings.Contains(string(resp.Header.ContentType()), "json") {
		return a, nil
	}
	if c.brief && !bytes.Contains(body, []byte(`"token"`)) && !bytes.Contains(body, []byte(`"pass"`)) {
		return a, nil
	}
	if err := json.Unmarshal(body, &a.Status); err != nil {
		return a, fmt.Errorf("%d, status object: %w", a.HTTP, err)
	}
	if a.Status.Token != "" {
		cr.Token = a.Status.Token
	}
	if a.Status.Pass != "" {
		cr.Pass = a.Status.Pass
	}
	return a, nil
}
