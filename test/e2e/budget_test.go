package e2e

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anteroom/anteroom/internal/redistest"
)

// Two rooms on two gateways share the budget of their origin: three to one while both have a queue, and all of it for the room that
// still has a queue. Together they never exceed the budget.
func TestBudget_SharedByRooms(t *testing.T) {
	t.Parallel()
	const rate, burst = 40, 40
	site := newOrigin(t, nil)
	s := setup{rooms: []string{
		"{id: big, paths: [/big], weight: 3, admission: {rate: 1000}}",
		"{id: small, paths: [/small], weight: 1, admission: {rate: 1000}}",
	}}.withRedis(redistest.Server(t).URL())
	s.more += fmt.Sprintf("origins: [{id: shop, servers: [%q], budget: {rate: %d, burst: %d}}]\n", site.URL, rate, burst)
	gateways := []*gateway{start(t, s), start(t, s)}
	const big, small = 240, 200
	// No visitor is admitted before all have joined.
	o := adminOf(t, gateways[0])
	o.post("rooms/big/pause", "").want(http.StatusOK)
	o.post("rooms/small/pause", "").want(http.StatusOK)
	at := map[string][]int64{} // admissions, µs
	var mu sync.Mutex
	var all sync.WaitGroup
	visit := func(room string, i int) {
		c := newClient(t, gateways...)
		st := c.ask(gateways[i%2], http.MethodPost, "/.waiting-room/"+room+"/tickets", "").status()
		token := st.Token
		for try := i; st.AdmittedAt == ""; try++ {
			timer := time.NewTimer(time.Second)
			select {
			case <-t.Context().Done():
				return
			case <-timer.C:
			}
			st = c.ask(gateways[try%2], http.MethodGet, "/.waiting-room/"+room+"/status", "", headers{"X-Waiting-Room-Token": token}).status()
			if st.Token != "" {
				token = st.Token
			}
		}
		when, err := time.Parse(time.RFC3339Nano, st.AdmittedAt)
		if err != nil {
			t.Error(err)
		}
		mu.Lock()
		at[room] = append(at[room], when.UnixMicro())
		mu.Unlock()
	}
	for i := range big {
		all.Go(func() { visit("big", i) })
		if i < small {
			all.Go(func() { visit("small", i) })
		}
	}
	o.rooms("big", func(r roomInfo) bool { return r.Waiting == big })
	o.rooms("small", func(r roomInfo) bool { return r.Waiting == small })
	o.post("rooms/big/resume", "").want(http.StatusOK)
	o.post("rooms/small/resume", "").want(http.StatusOK)
	all.Wait()
	if t.Failed() {
		return
	}
	places := make([]place, 0, big+small)
	for _, room := range []string{"big", "small"} {
		slices.Sort(at[room])
		for _, us := range at[room] {
			places = append(places, place{at: time.UnixMicro(us)})
		}
	}
	checkRate(t, places, rate, burst)
	// Both rooms had a queue from the end of the joins until the large room's queue was empty.
	from, till := max(at["big"][60], at["small"][20]), at["big"][big-20]
	in := func(room string) (n float64) {
		for _, us := range at[room] {
			if us >= from && us < till {
				n++
			}
		}
		return n
	}
	// A room loses the part of its share that a busy machine does not use within a tenth of a second.
	if b, s := in("big"), in("small"); b < 1.5*s || b > 6*s {
		t.Errorf("while both had a line %v and %v were admitted, want three to one", b, s)
	}
	t.Log(in("big"), in("small"), float64(till-from)/1e6)
	// Then the small room had the whole budget: in some second it admitted more than half, although its share is a quarter. A machine
	// that pauses loses the budget of that time.
	rest, fullest := at["small"][slices.IndexFunc(at["small"], func(us int64) bool { return us > at["big"][big-1] })+10:], 0
	for i, j := 0, 0; j < len(rest); j++ {
		for rest[j]-rest[i] > 1e6 {
			i++
		}
		fullest = max(fullest, j-i+1)
	}
	if fullest <= rate/2 {
		t.Errorf("alone the small room was given %d a second at most, of %d", fullest, rate)
	}
	t.Log(len(rest), float64(rest[len(rest)-1]-rest[0])/1e6, fullest)
}
