package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

// late is how long after its next poll a visitor has to see a publication: 99 % of them.
const late = time.Second

// sighting is when one visitor saw a publication. A publication may be seen one interval later than at once: afterPoll is the rest.
type sighting struct{ took, afterPoll time.Duration }

// publication is one version of the facts, and who has seen it.
type publication struct {
	sync.Mutex
	version        string // empty: not known yet
	at             time.Time
	polled         []sighting
	received       []time.Duration
	seen, listened map[int]bool
}

// saw records that a visitor has read a version in a poll that was sent interval after the previous one.
func (p *publication) saw(i int, version string, now time.Time, interval time.Duration) {
	p.Lock()
	defer p.Unlock()
	if version == p.version && !p.seen[i] {
		p.seen[i] = true
		p.polled = append(p.polled, sighting{now.Sub(p.at), now.Sub(p.at) - interval})
	}
}

func (p *publication) receivedBy(i int, version string, now time.Time) {
	p.Lock()
	defer p.Unlock()
	if version == p.version && !p.listened[i] {
		p.listened[i] = true
		p.received = append(p.received, now.Sub(p.at))
	}
}

// facts publishes while visitors poll at the advised intervals and others listen.
func facts(f *fleet, o options, broken *table.Broken) {
	f.operate(0, http.MethodPost, "/pause", "")
	to := visitor.Options{URLs: f.urls(), Room: "sale", Connections: 128, Timeout: 30 * time.Second}
	rig.Say("joining with %d visitors", o.pollers+o.listeners)
	pool := rig.Must(visitor.Gather(f, to, o.pollers+o.listeners, 0))
	rig.Require(len(pool.Waiting) == o.pollers+o.listeners, "%d visitors wait, want %d", len(pool.Waiting), o.pollers+o.listeners)
	ctx, stop := context.WithCancel(f.Context)
	var over sync.WaitGroup
	defer over.Wait()
	defer stop()
	client := rig.Must(visitor.New(to))
	var current atomic.Pointer[publication]
	current.Store(&publication{})
	var polls, failures, longest atomic.Int64
	for i := range pool.Waiting[:o.pollers] {
		over.Go(func() {
			cr := pool.Waiting[i]
			interval, before := rand.N(10*time.Second), time.Now() //nolint:gosec // the phase is no secret
			for rig.Sleep(ctx, interval) {
				sent := time.Now()
				after := sent.Sub(before) // the generator may be late
				before = sent
				a, err := client.Status(&cr)
				polls.Add(1)
				if err != nil || a.Status.State != "waiting" {
					failures.Add(1)
					interval = 2 * time.Second
					continue
				}
				if a.Status.Facts != nil {
					current.Load().saw(i, a.Status.Facts.Version, time.Now(), after)
				}
				interval = time.Duration(a.Status.RefreshAfter * float64(time.Second))
				raise(&longest, int64(interval))
			}
		})
	}
	var open atomic.Int64
	for i, cr := range pool.Waiting[o.pollers:] {
		over.Go(func() {
			var once sync.Once
			for ctx.Err() == nil {
				_ = listen(ctx, f.gateways[i%2].URL()+"/.waiting-room/sale/events", http.Header{"X-Waiting-Room-Token": {cr.Token}}, func(event string, data []byte) bool {
					once.Do(func() { open.Add(1) })
					if v, err := decode[visitor.Facts](data); event == "facts" && err == nil {
						current.Load().receivedBy(i, v.Version, time.Now())
					}
					return true
				})
				rig.Sleep(ctx, time.Second)
			}
		})
	}
	for waited := 0; open.Load() < int64(o.listeners); waited++ {
		rig.Require(waited < 60, "%d of %d event streams are open after a minute", open.Load(), o.listeners)
		f.Wait(time.Second)
	}
	f.Wait(12 * time.Second) // every visitor has polled and polls at the advised intervals
	var took, afterPoll, received []time.Duration
	missed := 0
	for n := range o.puts {
		f.Wait(rand.N(time.Second)) //nolint:gosec // the phase is no secret
		text := body(n)
		p := &publication{seen: map[int]bool{}, listened: map[int]bool{}, at: time.Now()}
		p.Lock()
		current.Store(p)
		_, reply, err := rig.Request(f, 10*time.Second, http.MethodPut, "http://"+f.gateways[n%2].Admin+"/admin/v1/rooms/sale/facts", []byte(text),
			"Content-Type", "application/json")
		v, err2 := decode[visitor.Facts](reply)
		p.version = v.Version
		p.Unlock()
		rig.Check(cmp.Or(err, err2))
		rig.Say("publication %d of %d: version %s", n+1, o.puts, p.version)
		f.Wait(time.Duration(longest.Load()) + 10*time.Second)
		p.Lock()
		for _, s := range p.polled {
			took, afterPoll = append(took, s.took), append(afterPoll, max(0, s.afterPoll))
		}
		received = append(received, p.received...)
		missed += o.pollers - len(p.polled)
		p.Unlock()
	}
	stop()
	over.Wait()
	client.Close()
	fmt.Fprintf(f.Out, "facts      %d visitors poll every %v at most (%d polls failed); %d publications, not seen %d times\n", o.pollers, time.Duration(longest.Load()).Round(time.Second), failures.Load(), o.puts, missed)
	fmt.Fprintf(f.Out, "           seen after %s; longer than one interval by %s\n", sentence(took), sentence(afterPoll))
	fmt.Fprintf(f.Out, "           %d event streams: after %s\n", o.listeners, sentence(received))
	afterPoll = append(afterPoll, slices.Repeat([]time.Duration{time.Hour}, missed)...)
	received = append(received, slices.Repeat([]time.Duration{time.Hour}, o.listeners*o.puts-len(received))...)
	p99, most := table.Quantile(afterPoll, 0.99).Round(time.Millisecond), table.Quantile(received, 0.99).Round(time.Millisecond)
	broken.If(p99 > late, "1 %% of the visitors saw facts more than %v after their next poll was due, want at most %v", p99, late)
	broken.If(most > late, "1 %% of the event streams showed facts after %v, want at most %v", most, late)
}

// body returns 1 KiB of facts that differ for each n.
func body(n int) string {
	var items []string
	for i := range 10 {
		items = append(items, fmt.Sprintf(`{"id":"block-%d","label":{"en":"Block %d, publication %d"},"state":"available","price":{"from":%d,"currency":"EUR"}}`, i, i, n, 20+n))
	}
	return `{"items":[` + strings.Join(items, ",") + `]}`
}
