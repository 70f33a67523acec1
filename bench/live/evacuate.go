package main

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/verdict"
	"github.com/anteroom/anteroom/bench/visitor"
)

// refusedWithin is the time after which both gateways have to refuse every pass from before an evacuation.
const refusedWithin = 2 * time.Second

// returned is one visitor of an evacuation.
type returned struct {
	visitor.Credentials
	before   int64 // the order in the pass
	after    int64 // the order in the waiting token; 0: none
	position int64
	admitted int64 // when the store admitted the visitor again, microseconds
	waiting  string
}

// evacuate ends the sessions of visitors who go on requesting pages at both gateways. All return, newcomers join, and the room admits
// again.
func evacuate(f *fleet, o options, broken *table.Broken) {
	f.operate(0, http.MethodPatch, "", `{"rate":100000,"burst":1000}`)
	f.Wait(1500 * time.Millisecond)
	to := visitor.Options{URLs: f.urls(), Room: "sale", Connections: 32, Timeout: 10 * time.Second}
	pool := rig.Must(visitor.Gather(f, to, 0, o.inside))
	rig.Require(len(pool.Admitted) == o.inside, "%d of %d visitors are inside", len(pool.Admitted), o.inside)
	all := make([]returned, o.inside)
	for i := range all {
		claims := rig.Must(visitor.Decode(pool.Admitted[i].Pass))
		rig.Require(claims.Order != nil, "the pass has no order")
		all[i] = returned{Credentials: visitor.Credentials{Pass: pool.Admitted[i].Pass}, before: *claims.Order}
	}
	f.operate(0, http.MethodPost, "/pause", "") // so that nobody has a new pass before all have returned

	// Each gateway gets each pass in turn, from before the evacuation until the bar has passed.
	client := rig.Must(visitor.New(visitor.Options{URLs: f.urls(), Room: "sale", Connections: 16, Timeout: 10 * time.Second}))
	defer client.Close()
	var next, accepted, refused, lastAccepted atomic.Int64 // lastAccepted: microseconds, when it was sent
	var inside errgroup.Group
	visiting, leave := context.WithCancel(f)
	defer leave()
	for range 8 {
		inside.Go(func() error {
			for visiting.Err() == nil {
				cr := all[int(next.Add(1))%len(all)].Credentials
				sent := time.Now().UnixMicro()
				a, err := client.Visit(&cr, "/")
				if err != nil {
					return err
				}
				if a.Room != "" {
					refused.Add(1)
					continue
				}
				accepted.Add(1)
				raise(&lastAccepted, sent)
			}
			return nil
		})
	}
	f.Wait(time.Second)
	rig.Require(refused.Load() == 0 && accepted.Load() > 0, "before the evacuation %d requests were refused and %d accepted", refused.Load(), accepted.Load())
	began := time.Now()
	f.operate(0, http.MethodPost, "/evacuate", `{"reason":"the origin is down"}`)
	took := time.Since(began)
	f.Wait(refusedWithin)
	leave()
	rig.Check(inside.Wait())
	last := time.Duration(max(0, lastAccepted.Load()-began.UnixMicro())) * time.Microsecond
	fmt.Fprintf(f.Out, "evacuate   %d inside: the request took %v; the last accepted pass was sent %v after it; %d requests refused since\n",
		o.inside, took.Round(time.Millisecond), last.Round(time.Millisecond), refused.Load())
	broken.If(last > refusedWithin, "a pass was accepted %v after the evacuation, want at most %v", last, refusedWithin)

	// Every visitor returns once at each gateway. Newcomers join meanwhile.
	newcomers := rig.Must(visitor.Gather(f, to, o.inside/20+1, 0))
	var opened, lost, moved, front int
	for round := range 2 {
		var group errgroup.Group
		group.SetLimit(16)
		for i := range all {
			group.Go(func() error {
				me := &all[i]
				me.waiting = ""
				a, err := client.Visit(&me.Credentials, "/")
				if err == nil && a.Room != "" {
					me.waiting, me.position = a.Status.State, a.Status.Position
				}
				return err
			})
		}
		rig.Check(group.Wait())
		for i := range all {
			me := &all[i]
			if me.waiting == "" {
				opened++
			}
			if c, err := visitor.Decode(me.Token); err == nil && c.Order != nil {
				me.after = *c.Order
			}
			if round == 1 && me.after == 0 {
				lost++
			} else if me.after != 0 && me.after != me.before {
				moved++
				if moved%20 == 1 {
					rig.Say("round %d: order %d became %d (%+d µs)", round, me.before, me.after, me.after-me.before)
				}
			}
		}
		f.Wait(2 * time.Second)
	}
	for _, cr := range newcomers.Waiting {
		c := rig.Must(visitor.Decode(cr.Token))
		for i := range all {
			if *c.Order <= all[i].after {
				front++
			}
		}
	}
	fmt.Fprintf(f.Out, "           afterwards %d passes opened the site, %d visitors have no place, %d another order, %d pairs with a newcomer ahead\n", opened, lost, moved, front)
	broken.If(opened+lost+moved+front > 0, "evacuation: %d passes opened, %d places lost, %d orders changed, %d newcomers ahead", opened, lost, moved, front)

	f.operate(1, http.MethodPatch, "", `{"rate":2000,"burst":200}`)
	f.operate(1, http.MethodPost, "/resume", "")
	order := readmit(f, client, all)
	fmt.Fprintf(f.Out, "           admitted again: %d of %d; %d pairs out of order, at worst by %.2f s\n", order.Compared, o.inside, order.Inversions, order.OvertakenMost)
	broken.If(order.Compared < o.inside || order.Inversions > 0, "%d of %d were admitted again, %d pairs out of order", order.Compared, o.inside, order.Inversions)
}

// raise stores a value that is larger than the one that is stored.
func raise(most *atomic.Int64, to int64) {
	for now := most.Load(); to > now && !most.CompareAndSwap(now, to); now = most.Load() {
	}
}

// readmit polls with all visitors until each is admitted, and judges their order.
func readmit(f *fleet, client *visitor.Client, all []returned) verdict.Order {
	var left []*returned
	for i := range all {
		left = append(left, &all[i])
	}
	slices.SortFunc(left, func(a, b *returned) int { return cmp.Compare(a.after, b.after) })
	deadline := time.Now().Add(2 * time.Minute)
	for len(left) > 0 && time.Now().Before(deadline) {
		var group errgroup.Group
		group.SetLimit(16)
		for _, me := range left[:min(len(left), 4000)] {
			group.Go(func() error {
				me.Pass = ""
				a, err := client.Status(&me.Credentials)
				me.admitted = a.AdmittedAt()
				return err
			})
		}
		rig.Check(group.Wait())
		left = slices.DeleteFunc(left, func(r *returned) bool { return r.admitted > 0 })
		f.Wait(100 * time.Millisecond)
	}
	var admissions []verdict.Admission
	for i := range all {
		if all[i].admitted > 0 {
			admissions = append(admissions, verdict.Admission{At: all[i].admitted, Order: all[i].after, Ordered: true})
		}
	}
	return verdict.JudgeOrder(admissions)
}
