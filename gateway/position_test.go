package gateway

import (
	"bufio"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/internal/short"
)

// A queue of thousands advances while some visitors leave and no one joins. No response has a larger position than an earlier response
// to the same visitor: not from the front, the rank sketch or the cache, and not with a renewed token.
func TestPosition_NeverGrows(t *testing.T) {
	short.Skip(t, "waits for the clock")
	t.Parallel()
	p := policy(1)
	p.Rate = 100_000
	b, _ := one(t, Room{ID: "sale", Policy: p})
	b.call("GET /", asJSON).code(t, 200) // takes the burst
	if err := b.state.Load().byID["sale"].queue.Pause(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	const crowd, askers, lasts = 1600, 8, 2 * time.Minute // at most; a busy machine admits more slowly
	// A visitor without a poll for this long may be parked; when the visitor polls again, later positions grow.
	const unheard = 25 * time.Second
	type visitor struct {
		token    string
		position int64
		over     bool
		asked    time.Time
	}
	all := make([]visitor, crowd)
	var work, joined sync.WaitGroup
	joined.Add(askers)
	begin := make(chan time.Time)
	var moved atomic.Int64
	var parked atomic.Bool // a visitor may have been parked
	for k := range askers {
		work.Go(func() {
			c, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Error(err)
				joined.Done()
				return
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(5 * time.Minute))
			r := bufio.NewReader(c)
			settled := false // before that the queue grows, also by earlier tickets whose first poll is later
			ask := func(v *visitor, request string) (ok bool) {
				header := []string{request}
				if v.token != "" {
					header = append(header, "X-Waiting-Room-Token: "+v.token)
				}
				last := v.asked
				v.asked = time.Now()
				if settled && v.asked.Sub(last) > unheard {
					parked.Store(true)
				}
				a, err := exchange(c, r, header...)
				if err != nil || a.status >= 300 {
					t.Errorf("%s: %v %+v", request, err, a)
					return false
				}
				if fresh := a.field("token"); fresh != "" {
					v.token = fresh
				}
				state := a.field("state")
				if v.over = state != "waiting"; v.over {
					moved.Add(1)
					return true
				}
				n, err := strconv.ParseInt(a.field("position"), 10, 64)
				if err != nil || settled && n > v.position && !parked.Load() {
					t.Errorf("told position %d and then %s (%v)", v.position, a.body, err)
					return false
				}
				v.position = n
				return true
			}
			mine := func(do func(*visitor) bool) bool {
				for i := k; i < crowd; i += askers {
					if !all[i].over && !do(&all[i]) {
						return false
					}
				}
				return true
			}
			ok := mine(func(v *visitor) bool { return ask(v, "POST /.waiting-room/sale/tickets") })
			for range 2 { // enrols them all
				ok = ok && mine(func(v *visitor) bool { return ask(v, "GET /.waiting-room/sale/status") })
			}
			joined.Done()
			until := <-begin
			ok = ok && mine(func(v *visitor) bool { return ask(v, "GET /.waiting-room/sale/status") })
			settled = true
			for ok && time.Now().Before(until) && moved.Load() < 500 && !parked.Load() {
				ok = mine(func(v *visitor) bool {
					if rand.IntN(50) == 0 {
						v.over = true
						moved.Add(1)
						_, err := exchange(c, r, "DELETE /.waiting-room/sale/tickets", "X-Waiting-Room-Token: "+v.token)
						if err != nil {
							t.Error(err)
						}
						return err == nil
					}
					return ask(v, "GET /.waiting-room/sale/status")
				})
			}
		})
	}
	joined.Wait()
	queue := b.state.Load().byID["sale"].queue
	// Wait until each part of the sketch has been counted after the last join. Before that, a position may be too small.
	var last *admission.Snapshot
	deadline := time.Now().Add(time.Minute)
	for counted := 0; counted < 40; pause(10 * time.Millisecond) {
		if now := queue.Snapshot(); now != last && sketched(now) {
			last = now
			counted++
		}
		if time.Now().After(deadline) {
			t.Fatal("the queue has no complete sketch after a minute")
		}
	}
	if err := queue.Resume(t.Context(), "test"); err != nil {
		t.Error(err)
	}
	until := time.Now().Add(lasts)
	for range askers {
		select {
		case begin <- until:
		case <-time.After(time.Minute):
			t.Error("a client has stopped polling")
		}
	}
	work.Wait()
	if n := moved.Load(); n < 100 && !parked.Load() {
		t.Errorf("only %d of %d have advanced", n, crowd)
	}
}

// sketched reports whether the rank sketch is exact enough for positions behind the front.
func sketched(s *admission.Snapshot) bool {
	last := int64(len(s.Front)) - 1
	for _, k := range s.Sketch {
		if k.Rank-last > 2+last/200 {
			return false
		}
		last = k.Rank
	}
	return len(s.Sketch) > 0
}
