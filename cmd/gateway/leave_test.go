package main

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestBalancers_AreWaitedFor(t *testing.T) {
	for _, row := range []struct {
		name   string
		before time.Duration // from the last question to the signal; negative: nobody ever asked
		every  time.Duration // between questions after it
		most   time.Duration
		want   time.Duration
	}{
		{"nobody asks", -1, 0, time.Minute, 0},
		{"nobody has asked lately", 31 * time.Second, 0, time.Minute, 0},
		{"three refusals", 2 * time.Second, time.Second, time.Minute, 3 * time.Second},
		{"asked rarely", 10 * time.Second, 10 * time.Second, time.Minute, 5 * time.Second},
		{"little time to shut down", 2 * time.Second, 2 * time.Second, time.Second, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ready := false
				b := newBalancers(func() bool { return ready })
				if row.before >= 0 {
					for i := range 10 { // while it starts, and while it is ready, nothing counts
						ready = i >= 5
						b.Ready()
					}
					<-time.After(row.before)
				}
				ready = false
				stop := make(chan struct{})
				defer close(stop)
				if row.every > 0 {
					go func() {
						tick := time.NewTicker(row.every)
						defer tick.Stop()
						for {
							select {
							case <-tick.C:
								b.Ready()
							case <-stop:
								return
							}
						}
					}()
				}
				began := time.Now()
				b.wait(t.Context(), row.most)
				if took := time.Since(began); took != row.want {
					t.Errorf("it waits %s, want %s", took, row.want)
				}
			})
		})
	}
}
