package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/anteroom/anteroom/bench/child"
)

// span is a silence of Redis, µs of this machine's clock, which is Redis's.
type span struct{ from, to int64 }

// fleet is one Redis and the gateways over it.
type fleet struct {
	dir, program string
	redis        *child.Child
	addrs        []string
	admins       []string
	config       []string // files

	turn []sync.Mutex // of each gateway, held while it has a fault

	mu       sync.Mutex
	gateways []*child.Child
	frozen   []span
	faults   []string // logs that tell of a fault of the program
	stopped  bool
	counts   struct{ kills, pauses, short, long int }
}

// ours are faults of the program.
var ours = regexp.MustCompile(`DATA RACE|(?m)^panic:|fault in a request|fatal error:`)

// end kills a gateway and reads its last words; f.mu is held.
func (f *fleet) end(g *child.Child) {
	g.Kill()
	if log := g.Log.String(); ours.MatchString(log) {
		f.faults = append(f.faults, g.Name+":\n"+log)
	}
}

const config = `listen: "%s"
admin: {listen: "%s"}
log: {level: warn, access: false}
store: {url: "unix://%s"}
tokens: {keys: [{id: k1, alg: HS256, secret: "chaos-signing-secret-of-40-bytes-or-more", active: true}]}
origins: [{id: site, servers: ["http://%s"]}]
rooms:
  - {id: sale, origin: site, admission: {rate: %g, burst: %g, max_active: %d}, session: {ttl: 1m}, guard: {joins_per_ip: ""}}
`

func (f *fleet) start(ctx context.Context, o options, origin string) error {
	redis, err := child.Find("redis-server")
	if err != nil {
		return err
	}
	socket := filepath.Join(f.dir, "redis.sock")
	if f.redis, err = child.Start("redis", redis, "--port", "0", "--unixsocket", socket, "--dir", f.dir, "--save", "", "--appendonly", "no",
		"--maxmemory-policy", "noeviction"); err != nil {
		return err
	}
	f.gateways, f.turn = make([]*child.Child, o.gateways), make([]sync.Mutex, o.gateways)
	for i := range o.gateways {
		addr, err := lastingPort()
		if err != nil {
			return err
		}
		admin, err := lastingPort()
		if err != nil {
			return err
		}
		path := filepath.Join(f.dir, fmt.Sprintf("gateway-%d.yaml", i))
		text := fmt.Appendf(nil, config, addr, admin, socket, origin, o.rate, o.burst, o.maxActive)
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
		f.addrs, f.admins, f.config = append(f.addrs, addr), append(f.admins, admin), append(f.config, path)
		if err := f.launch(i); err != nil {
			return err
		}
	}
	for i, g := range f.gateways {
		if err := g.Ready(ctx, f.addrs[i]); err != nil {
			return err
		}
	}
	return nil
}

func (f *fleet) launch(i int) error {
	g, err := child.Start(fmt.Sprintf("gateway %d", i), f.program, "serve", "--config", f.config[i])
	if err != nil {
		return err
	}
	f.mu.Lock()
	f.gateways[i] = g
	f.mu.Unlock()
	return nil
}

// stop ends everything, whatever state it is in. It may be called again.
func (f *fleet) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped {
		return
	}
	f.stopped = true
	for _, g := range f.gateways {
		if g != nil {
			f.end(g)
		}
	}
	if f.redis != nil {
		f.redis.Kill()
	}
}

// run carries the plan out, and returns when the last fault has ended and everything runs. Faults of several processes
// overlap as the plan has them.
func (f *fleet) run(ctx context.Context, plan []fault) error {
	began := time.Now()
	var faults sync.WaitGroup
	errs := make(chan error, len(plan))
	for _, p := range plan {
		if !sleep(ctx, time.Until(began.Add(p.at))) {
			break
		}
		faults.Go(func() {
			if err := f.inflict(ctx, p); err != nil {
				errs <- err
			}
		})
	}
	faults.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// inflict does one fault and ends it, when ctx has ended too.
func (f *fleet) inflict(ctx context.Context, p fault) error {
	if p.what == freeze {
		if err := f.redis.Signal(syscall.SIGSTOP); err != nil {
			return err
		}
		from := time.Now()
		sleep(ctx, p.last)
		to := time.Now()
		f.mu.Lock()
		f.frozen = append(f.frozen, span{from.UnixMicro(), to.UnixMicro()})
		if to.Sub(from) > gap {
			f.counts.long++
		} else {
			f.counts.short++
		}
		f.mu.Unlock()
		return f.redis.Signal(syscall.SIGCONT)
	}
	// On a machine that is late a fault may begin before the one before it has ended.
	f.turn[p.who].Lock()
	defer f.turn[p.who].Unlock()
	f.mu.Lock()
	g := f.gateways[p.who]
	f.mu.Unlock()
	if p.what == pause {
		f.mu.Lock()
		f.counts.pauses++
		f.mu.Unlock()
		if err := g.Signal(syscall.SIGSTOP); err != nil {
			return fmt.Errorf("%s: %w\n%s", g.Name, err, g.Log)
		}
		sleep(ctx, p.last)
		return g.Signal(syscall.SIGCONT)
	}
	select {
	case <-g.Ended():
		return fmt.Errorf("%s ended by itself:\n%s", g.Name, g.Log)
	default:
	}
	f.mu.Lock()
	f.end(g)
	f.counts.kills++
	f.mu.Unlock()
	sleep(ctx, p.last)
	return f.launch(p.who)
}

// lastingPort is a free loopback port below those that systems give to outgoing connections: one of these would have it
// while its gateway is down.
func lastingPort() (string, error) {
	var last error
	for range 100 {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", 15000+rand.IntN(15000))) //nolint:gosec // any port will do
		if err != nil {
			last = err
			continue
		}
		return l.Addr().String(), l.Close()
	}
	return "", last
}

// metric reads one figure from the first gateway that tells it.
func (f *fleet) metric(ctx context.Context, name string) (float64, error) {
	var last error
	for _, admin := range f.admins {
		v, err := metricOf(ctx, admin, name)
		if err == nil {
			return v, nil
		}
		last = err
	}
	return 0, last
}

func metricOf(ctx context.Context, admin, name string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("%s does not tell %s", admin, name)
}

// sleep waits so long; false when ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
