package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
	"github.com/anteroom/anteroom/bench/table"
	"github.com/anteroom/anteroom/bench/visitor"
)

// shown is the time within which a change has to be shown and in force: the p99.
const shown = time.Second

// witness sees the room as one gateway shows it.
type witness struct {
	sync.Mutex
	message string
	limit   float64
	at      time.Time // when message was seen first
}

func (w *witness) see(message string, limit float64) {
	w.Lock()
	defer w.Unlock()
	if message != w.message || limit != w.limit {
		w.message, w.limit, w.at = message, limit, time.Now()
	}
}

func (w *witness) saw(message string, limit float64) (at time.Time, ok bool) {
	w.Lock()
	defer w.Unlock()
	return w.at, w.message == message && w.limit == limit
}

// change changes the message and the rate through one gateway and the other, and measures when both gateways show the message to a
// visitor who waits and both streams of the console show message and rate. A visitor polls every 2 ms.
func change(f *fleet, o options, broken *table.Broken) {
	ctx, stop := context.WithCancel(f.Context)
	var over sync.WaitGroup
	defer over.Wait()
	defer stop()
	f.operate(0, http.MethodPost, "/pause", "")
	var console, visitors [2]witness
	failed := make(chan error, 4)
	for i, g := range f.gateways {
		over.Go(func() {
			err := listen(ctx, "http://"+g.Admin+"/admin/v1/stream", nil, func(event string, data []byte) bool {
				v, err := decode[struct {
					Rooms []struct {
						Message string
						Limit   float64
					}
				}](data)
				if event == "rooms" && err == nil && len(v.Rooms) == 1 {
					console[i].see(v.Rooms[0].Message, v.Rooms[0].Limit)
				}
				return true
			})
			if ctx.Err() == nil {
				failed <- err
			}
		})
		client := rig.Must(visitor.New(visitor.Options{URLs: []string{g.URL()}, Room: "sale", Connections: 1, Timeout: 5 * time.Second}))
		var cr visitor.Credentials
		rig.Must(client.Join(&cr))
		over.Go(func() {
			defer client.Close()
			for rig.Sleep(ctx, 2*time.Millisecond) {
				a, err := client.Status(&cr)
				if err != nil {
					failed <- err
					return
				}
				visitors[i].see(a.Status.Message, 0)
			}
		})
	}
	var onConsole, inForce, both []time.Duration
	for n := range o.changes {
		f.Wait(500*time.Millisecond + rand.N(time.Second)) //nolint:gosec // the phase is no secret
		message, rate := fmt.Sprintf("change %d", n), float64(6+n)
		sent := time.Now()
		f.operate(n%2, http.MethodPatch, "", fmt.Sprintf(`{"message":%q,"rate":%g}`, message, rate))
		latest := func(all *[2]witness, limit float64) (last time.Time, ok bool) {
			for i := range all {
				at, saw := all[i].saw(message, limit)
				if !saw {
					return last, false
				}
				if at.After(last) {
					last = at
				}
			}
			return last, true
		}
		for {
			c, seen := latest(&console, rate)
			v, known := latest(&visitors, 0)
			if seen && known {
				onConsole, inForce = append(onConsole, c.Sub(sent)), append(inForce, v.Sub(sent))
				both = append(both, max(c.Sub(sent), v.Sub(sent)))
				break
			}
			select {
			case err := <-failed:
				rig.Check(err)
			default:
			}
			rig.Require(time.Since(sent) < 30*time.Second, "change %d is not shown after 30 s", n)
			f.Wait(2 * time.Millisecond)
		}
	}
	fmt.Fprintf(f.Out, "change     in force at both gateways after %s\n", sentence(inForce))
	fmt.Fprintf(f.Out, "           on both consoles' streams after %s\n", sentence(onConsole))
	p99 := table.Quantile(both, 0.99).Round(time.Millisecond)
	broken.If(p99 > shown, "a change is in force and shown after %v (p99), want at most %v", p99, shown)
}
