package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/anteroom/anteroom/internal/redistest"
)

// storeTrouble is a store with faults, and the connection to it.
type storeTrouble struct {
	t      *testing.T
	server *redistest.PrivateServer
	proxy  *redistest.FaultProxy
	admin  redis.UniversalClient
	stop   chan struct{}
	done   chan struct{}
}

func (s *storeTrouble) do(command ...any) {
	s.t.Helper()
	if err := s.admin.Do(context.Background(), command...).Err(); err != nil {
		s.t.Fatalf("%v: %v", command, err)
	}
}

// again repeats an action until the end of the fault.
func (s *storeTrouble) again(every time.Duration, do func()) {
	s.stop, s.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(s.done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			do()
			select {
			case <-s.stop:
				return
			case <-tick.C:
			}
		}
	}()
}

func (s *storeTrouble) enough() { close(s.stop); <-s.done }

func (s *storeTrouble) file(name string) string {
	return filepath.Join(filepath.Dir(s.server.Socket()), name)
}

// served describes the responses to visitors during the fault.
type served int

const (
	well served = iota // the store replies, possibly slowly
	away               // by on_store_error
	full               // new visitors by on_store_error, all others normally
	odd                // any of these
)

// storeTroubles are the faults of the store, each with its effect on visitors.
var storeTroubles = []struct {
	name    string
	args    []string // of the server
	timeout string   // store.timeout; 250ms
	begin   func(*storeTrouble)
	end     func(*storeTrouble)
	served  served
	emptied bool // its data are gone
}{
	{name: "5 ms slow", begin: func(s *storeTrouble) { s.proxy.Delay(5 * time.Millisecond) }, end: func(s *storeTrouble) { s.proxy.Heal() }, served: well, timeout: "2s"},
	{name: "200 ms slow", begin: func(s *storeTrouble) { s.proxy.Delay(200 * time.Millisecond) }, end: func(s *storeTrouble) { s.proxy.Heal() }, served: well, timeout: "5s"},
	{name: "2 s slow", begin: func(s *storeTrouble) { s.proxy.Delay(2 * time.Second) }, end: func(s *storeTrouble) { s.proxy.Heal() }, served: away},
	{name: "replies lost", begin: func(s *storeTrouble) { s.proxy.Drop(nil) }, end: func(s *storeTrouble) { s.proxy.Heal() }, served: away},
	{
		name: "connections reset", begin: func(s *storeTrouble) { s.again(30*time.Millisecond, s.proxy.Reset) },
		end: func(s *storeTrouble) { s.enough() }, served: odd,
	},
	{name: "half-open", begin: func(s *storeTrouble) { s.proxy.Hold() }, end: func(s *storeTrouble) { s.proxy.Heal() }, served: away},
	{name: "frozen", begin: func(s *storeTrouble) { s.server.Stop() }, end: func(s *storeTrouble) { s.server.Cont() }, served: away},
	{
		name: "killed, restarted with its data", args: []string{"--appendonly", "yes", "--appendfsync", "always"},
		begin: func(s *storeTrouble) { s.server.Kill() }, end: func(s *storeTrouble) { s.server.Restart() }, served: away,
	},
	{
		name: "killed, restarted without", begin: func(s *storeTrouble) { s.server.Kill() }, end: func(s *storeTrouble) { s.server.Restart() },
		served: away, emptied: true,
	},
	{
		name: "LOADING", args: []string{"--appendonly", "yes", "--appendfsync", "always"},
		begin: func(s *storeTrouble) {
			s.do("EVAL", "for i = 1, 60000 do redis.call('SET', 'x' .. i, i) end return 1", 0)
			s.server.Kill()
			s.done = make(chan struct{})
			go func() { s.server.RestartWith("--key-load-delay", "1"); close(s.done) }() // it sleeps for each key
		},
		end: func(s *storeTrouble) { <-s.done }, served: away,
	},
	{
		name: "OOM", begin: func(s *storeTrouble) { s.do("CONFIG", "SET", "maxmemory", 1) },
		end: func(s *storeTrouble) { s.do("CONFIG", "SET", "maxmemory", 0) }, served: full,
	},
	{
		name: "READONLY", begin: func(s *storeTrouble) { s.do("REPLICAOF", "127.0.0.1", 1) },
		end: func(s *storeTrouble) { s.do("REPLICAOF", "NO", "ONE") }, served: away,
	},
	{
		name: "NOREPLICAS", begin: func(s *storeTrouble) { s.do("CONFIG", "SET", "min-replicas-to-write", 1) },
		end: func(s *storeTrouble) { s.do("CONFIG", "SET", "min-replicas-to-write", 0) }, served: away,
	},
	{
		name: "MISCONF: saving fails",
		begin: func(s *storeTrouble) {
			if err := os.MkdirAll(filepath.Join(s.file("dump.rdb"), "in the way"), 0o700); err != nil {
				s.t.Fatal(err)
			}
			s.do("CONFIG", "SET", "save", "3600 1000000")
			s.do("BGSAVE")
		},
		end: func(s *storeTrouble) { s.do("CONFIG", "SET", "save", "") }, served: away,
	},
	{
		name: "disk full",
		begin: func(s *storeTrouble) {
			if err := os.MkdirAll(s.file("appendonlydir"), 0o700); err != nil {
				s.t.Fatal(err)
			}
			if err := os.Symlink("/dev/full", s.file("appendonlydir/temp-appendonly.aof.incr")); err != nil {
				s.t.Fatal(err)
			}
			s.do("CONFIG", "SET", "appendonly", "yes")
		},
		end: func(s *storeTrouble) { s.do("CONFIG", "SET", "appendonly", "no") }, served: away,
	},
	{
		name: "MAXCLIENTS", begin: func(s *storeTrouble) { s.do("CONFIG", "SET", "maxclients", 1); s.proxy.Reset() },
		end: func(s *storeTrouble) { s.do("CONFIG", "SET", "maxclients", 1000) }, served: away,
	},
	{
		name: "SCRIPT FLUSH", begin: func(s *storeTrouble) {
			s.again(30*time.Millisecond, func() { s.admin.ScriptFlush(context.Background()) })
		},
		end: func(s *storeTrouble) { s.enough() }, served: well, timeout: "2s",
	},
}

// byPolicy has the responses by on_store_error while the store is away: to a poll of a waiting visitor, to a join with an empty queue in
// the last snapshot, and to a join with a queue. Each is a status code, or a code and a state.
var byPolicy = []struct{ policy, poll, quiet, line string }{
	{"wait", "200 waiting", "201 waiting", "201 waiting"},
	{"open", "200 admitted", "201 admitted", "201 waiting"},
	{"closed", "200 waiting", "503 store_unavailable", "503 store_unavailable"},
	{"local", "200 waiting", "201 admitted", "201 waiting"},
}

// troubled holds the visitors of one room.
type troubled struct {
	room, pass, token string
	ord               int64
}

// TestStoreTroubles causes each fault in the store of a built gateway with a room for each policy.
func TestStoreTroubles(t *testing.T) {
	t.Parallel()
	for _, row := range storeTroubles {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			site := newOrigin(t, nil)
			s := &storeTrouble{t: t, server: redistest.Server(t, row.args...)}
			s.proxy, s.admin = redistest.Proxy(t, s.server.Socket()), s.server.Client()
			timeout := row.timeout
			if timeout == "" {
				timeout = "250ms"
			}
			var rooms []string
			for _, p := range byPolicy {
				rooms = append(rooms,
					fmt.Sprintf("{id: %s-quiet, paths: [/%s-quiet], on_store_error: %s, admission: {rate: 50, burst: 50}}", p.policy, p.policy, p.policy),
					fmt.Sprintf("{id: %s-line, paths: [/%s-line], on_store_error: %s, admission: {rate: 0.001, burst: 1}}", p.policy, p.policy, p.policy))
			}
			rooms = append(rooms, "{id: turn, paths: [/turn], admission: {rate: 20, burst: 1, min_wait: 1ms}}")
			conf := setup{origin: site.URL, rooms: rooms, more: "log: {access: false}"}.withRedis("redis://" + s.proxy.Addr())
			conf.store = fmt.Sprintf("{url: %q, timeout: %s}", "redis://"+s.proxy.Addr(), timeout)
			g := start(t, conf)
			c, o := newClient(t, g), adminOf(t, g)
			until(t, "the gateway has reached the store", func() bool { return o.metric("anteroom_store_up 1") })

			var all []troubled
			for _, p := range byPolicy {
				v := troubled{room: p.policy + "-line"}
				until(t, "a visitor enters "+v.room, func() bool { v.pass = joins(c, g, v.room).Pass; return v.pass != "" }) // a call may miss its deadline
				waiter := joins(c, g, v.room)
				v.token = waiter.Token
				_, w := decode(t, v.token)
				v.ord = w.Ord
				if v.pass == "" || waiter.State != "waiting" {
					t.Fatalf("%s: %+v", v.room, waiter)
				}
				all = append(all, v)
				o.rooms(v.room, func(r roomInfo) bool { return r.Waiting == 1 })
			}
			turn := joins(c, g, "turn")
			o.rooms("turn", func(r roomInfo) bool { return r.Admitted == 1 })

			row.begin(s)
			switch row.served {
			case away:
				until(t, "the breaker is open", func() bool { return o.metric("anteroom_store_up 0") })
				awayFrom(t, g, c, o, all, turn.Token)
			case full:
				fullFor(t, g, c, all, turn.Token)
			case well, odd:
				for _, v := range all {
					c.get(g, "/"+v.room, headers{"X-Waiting-Room-Pass": v.pass}).want(http.StatusOK)
					if a := polls(c, g, v); row.served == well && a.status().State != "waiting" {
						t.Errorf("%s: %s", v.room, a.body)
					}
				}
				for range 10 {
					if s := joins(c, g, "wait-quiet"); row.served == well && s.State != "admitted" {
						t.Errorf("a newcomer: %+v", s)
					}
				}
			}
			o.ask(http.MethodGet, "/readyz", "").want(http.StatusOK)
			o.ask(http.MethodGet, "/healthz", "").want(http.StatusOK)

			row.end(s)
			began := time.Now()
			until(t, "the store is heard again", func() bool { return o.metric("anteroom_store_up 1") })
			t.Logf("up %s after the end", time.Since(began).Round(time.Millisecond))
			for i, v := range all {
				if byPolicy[i].policy == "open" && row.served == away {
					continue // is admitted
				}
				until(t, v.room+": the place is there", func() bool {
					st := polls(c, g, v).status()
					if st.State != "waiting" {
						t.Fatalf("%s: %+v", v.room, st)
					}
					if _, w := decode(t, orElse(st.Token, v.token)); w.Ord != v.ord {
						t.Fatalf("%s: order %d became %d", v.room, v.ord, w.Ord)
					}
					return st.Position != nil && *st.Position == 1
				})
			}
			if row.served == full {
				return // is admitted
			}
			until(t, "the turn is claimed", func() bool {
				a := c.ask(g, http.MethodPost, "/.waiting-room/turn/claim", "", headers{"X-Waiting-Room-Token": turn.Token})
				if a.code != http.StatusOK && a.code != http.StatusConflict && a.code != http.StatusServiceUnavailable {
					t.Fatalf("%d %s", a.code, a.body)
				}
				return a.code == http.StatusOK
			})
		})
	}
}

func orElse(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func joins(c *client, g *gateway, room string) status {
	return c.ask(g, http.MethodPost, "/.waiting-room/"+room+"/tickets", "").want(http.StatusCreated).status()
}

func polls(c *client, g *gateway, v troubled) answer {
	return c.get(g, "/.waiting-room/"+v.room+"/status", headers{"X-Waiting-Room-Token": v.token}).want(http.StatusOK)
}

var toldState = regexp.MustCompile(`"(?:state|code)":"([a-z_]+)"`)

// told returns the code of a response, with its state or problem.
func told(a answer) string {
	if m := toldState.FindStringSubmatch(a.body); m != nil {
		return fmt.Sprint(a.code, " ", m[1])
	}
	return fmt.Sprint(a.code)
}

// awayFrom checks the responses to all kinds of visitors while the store does not answer.
func awayFrom(t *testing.T, g *gateway, c *client, o *operator, all []troubled, turn string) {
	t.Helper()
	want := func(what, want string, a answer) {
		t.Helper()
		if got := told(a); got != want {
			t.Errorf("%s: %s, want %s\n%s", what, got, want, tail(a.body))
		}
		if strings.HasPrefix(want, "503") && a.header.Get("Retry-After") == "" {
			t.Errorf("%s: no Retry-After", what)
		}
	}
	tickets := func(room string) answer { return c.ask(g, http.MethodPost, "/.waiting-room/"+room+"/tickets", "") }
	for i, p := range byPolicy {
		v := all[i]
		want(p.policy+": with a pass", "200", c.get(g, "/"+v.room, headers{"X-Waiting-Room-Pass": v.pass}))
		want(p.policy+": who comes where there is a line", p.line, tickets(v.room))
		// Each room detects on its own that the store is away.
		if !eventually(patience, func() bool { return told(polls(c, g, v)) == p.poll }) {
			want(p.policy+": a poll", p.poll, polls(c, g, v))
		}
		if p.policy == "local" {
			until(t, "local lets somebody in", func() bool { return told(tickets("local-quiet")) == p.quiet })
			continue
		}
		want(p.policy+": who comes where there is none", p.quiet, tickets(p.policy+"-quiet"))
	}
	bearer := headers{"X-Waiting-Room-Token": turn}
	claim := func() answer { return c.ask(g, http.MethodPost, "/.waiting-room/turn/claim", "", bearer) }
	want("a claim", "503 store_unavailable", claim())
	want("leaving", "503 store_unavailable", c.ask(g, http.MethodDelete, "/.waiting-room/turn/tickets", "", bearer))
	if a := o.patch("rooms/turn", `{"rate":20}`); a.code != http.StatusServiceUnavailable {
		t.Errorf("an operator's change: %d %s", a.code, a.body)
	}
	if r := o.room("wait-line"); r.Waiting != 1 {
		t.Errorf("the room as operators see it: %+v", r)
	}
	if text := o.ask(http.MethodGet, "/metrics", "").body; !regexp.MustCompile(`anteroom_store_errors_total\{[^}]*\} [1-9]`).MatchString(text) {
		t.Error("no errors of the store are counted")
	}
	// The log has less than one line for each request.
	before, began := strings.Count(g.text(), "store_unavailable")+strings.Count(g.text(), "request failed"), time.Now()
	for range 60 {
		want("a claim", "503 store_unavailable", claim())
	}
	lines := strings.Count(g.text(), "store_unavailable") + strings.Count(g.text(), "request failed") - before
	if most := 4 + int(time.Since(began)/time.Second); lines > most {
		t.Errorf("%d lines in the log for 60 claims in %s", lines, time.Since(began))
	}
}

// fullFor checks the responses to all kinds of visitors while the store refuses writes.
func fullFor(t *testing.T, g *gateway, c *client, all []troubled, turn string) {
	t.Helper()
	for i, p := range byPolicy {
		c.get(g, "/"+all[i].room, headers{"X-Waiting-Room-Pass": all[i].pass}).want(http.StatusOK)
		if st := polls(c, g, all[i]).status(); st.State != "waiting" {
			t.Errorf("%s: a poll: %+v", p.policy, st)
		}
		if p.policy != "local" {
			if got := told(c.ask(g, http.MethodPost, "/.waiting-room/"+p.policy+"-quiet/tickets", "")); got != p.quiet {
				t.Errorf("%s: who comes: %s, want %s", p.policy, got, p.quiet)
			}
		}
	}
	c.ask(g, http.MethodPost, "/.waiting-room/turn/claim", "", headers{"X-Waiting-Room-Token": turn}).want(http.StatusOK)
	if !adminOf(t, g).metric("anteroom_store_up 1") {
		t.Error("the store answers, but store_up is not 1")
	}
}

// number returns one value of /metrics.
func (o *operator) number(name string) float64 {
	o.t.Helper()
	for line := range strings.Lines(o.ask(http.MethodGet, "/metrics", "").body) {
		if v, ok := strings.CutPrefix(line, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				o.t.Fatal(err)
			}
			return f
		}
	}
	o.t.Fatalf("no metric %s", name)
	return 0
}
