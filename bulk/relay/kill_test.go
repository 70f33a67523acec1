package relay

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/anteroom/anteroom/internal/redistest"
)

// moment is where a relay dies.
type moment int

const (
	never        moment = iota
	beforeCall          // with a request that does not reach the server
	afterCall           // before it hears the response
	afterAnswer         // after it has heard the response
	duringCommit        // before it hears whether the transaction was committed
	moments
)

// killed is a relay whose process dies at its nth request: its connections break, and another one is made of the same options.
type killed struct {
	*bench
	proxy *redistest.FaultProxy
	relay *Relay

	mu    sync.Mutex
	at    moment
	calls int // until it dies
}

func newKilled(b *bench) *killed {
	k := &killed{bench: b, proxy: redistest.Proxy(b.t, server(b.t, b.name).Socket())}
	b.url = through(b.url, k.proxy)
	hook := func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		switch k.now() {
		case beforeCall:
			k.proxy.Reset()
			panic(http.ErrAbortHandler)
		case afterCall:
			next.ServeHTTP(discard{http.Header{}}, r)
			k.proxy.Reset()
			panic(http.ErrAbortHandler)
		case afterAnswer:
			next.ServeHTTP(w, r)
			k.proxy.Reset()
		case duringCommit:
			next.ServeHTTP(w, r)
			k.proxy.DropReads(func(command []byte) bool {
				if !bytes.Contains(command, []byte("COMMIT")) {
					return false
				}
				go k.proxy.Reset() // after the commit, or before it
				return true
			})
		default:
			next.ServeHTTP(w, r)
		}
	}
	b.handle.Store(&hook)
	k.restart()
	return k
}

// now counts a request, and returns whether the relay dies at it.
func (k *killed) now() moment {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.calls--; k.calls != 0 {
		return never
	}
	return k.at
}

// die sets where the relay dies next.
func (k *killed) die(at moment, calls int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.at, k.calls = at, calls
}

func (k *killed) restart() {
	k.die(never, 0)
	k.proxy.Heal()
	d, err := Open(k.url, "outbox")
	if err != nil {
		k.t.Fatal(err)
	}
	if k.relay != nil {
		_ = k.relay.o.Database.Close()
	}
	k.relay = New(Options{Database: d, Client: k.client, Once: true, Batch: 3})
}

// TestRelay_LosesAndRepeatsNothing kills relays at all moments, while an operator seals and deletes groups.
func TestRelay_LosesAndRepeatsNothing(t *testing.T) {
	with := map[string]*killed{}
	for _, name := range []string{"postgres", "mariadb"} {
		with[name] = newKilled(newBench(t, name, nil))
		defer func() { _ = with[name].relay.o.Database.Close() }()
	}
	cases := 0
	rapid.Check(t, func(t *rapid.T) {
		cases++
		testKills(t, with[rapid.SampledFrom([]string{"postgres", "mariadb"}).Draw(t, "database")], fmt.Sprintf("c%d", cases))
	})
}

// testKills is one case; its tenants, groups and jobs begin with name.
func testKills(t *rapid.T, k *killed, name string) {
	bad, runs := map[string]bool{}, map[string]int{}
	k.exec("DELETE FROM outbox")
	k.restart()
	groups := func() (ids []string) {
		for id := range k.totals() {
			if strings.Contains(id, name) {
				ids = append(ids, id)
			}
		}
		return ids
	}
	t.Repeat(map[string]func(*rapid.T){
		"insert": func(t *rapid.T) {
			for range rapid.IntRange(1, 5).Draw(t, "rows") {
				id := fmt.Sprintf("%s-%d", name, len(bad))
				bad[id] = rapid.IntRange(0, 9).Draw(t, "bad") == 0
				own := sql.NullString{String: name + "-own", Valid: rapid.IntRange(0, 2).Draw(t, "own") == 0}
				tenant := fmt.Sprintf("%s-%d", name, rapid.IntRange(0, 1).Draw(t, "tenant"))
				if own.Valid {
					tenant = name
				}
				k.exec("INSERT INTO outbox (tenant, type, payload, job_id, group_id, cost) VALUES (?, 'mail', '1', ?, ?, ?)", tenant, id, own, map[bool]int{true: 0, false: 1}[bad[id]])
			}
		},
		"relay": func(*rapid.T) { _ = k.relay.Run(context.Background()) }, // what it leaves is counted in the end
		"die": func(t *rapid.T) {
			k.die(moment(rapid.IntRange(1, int(moments)-1).Draw(t, "moment")), rapid.IntRange(1, 6).Draw(t, "calls"))
			_ = k.relay.Run(context.Background()) // dead
			k.restart()
		},
		"run": func(*rapid.T) { k.run(runs) },
		"seal": func(t *rapid.T) {
			if ids := groups(); len(ids) > 0 {
				if _, err := k.store.Seal(context.Background(), rapid.SampledFrom(ids).Draw(t, "group")); err != nil {
					t.Fatal(err)
				}
			}
		},
		"delete": func(t *rapid.T) {
			if ids := groups(); len(ids) > 0 {
				_, _ = k.store.Delete(context.Background(), rapid.SampledFrom(ids).Draw(t, "group"), time.Minute) // unless it goes on
			}
		},
	})
	// The database may take a moment to release the locks of a dead relay.
	for deadline := time.Now().Add(time.Minute); k.count("error IS NULL") > 0 && time.Now().Before(deadline); {
		_ = k.relay.Run(context.Background()) // says only what is aside
	}
	k.run(runs)

	kept := map[string]string{}
	found, err := k.db.QueryContext(context.Background(), "SELECT job_id, COALESCE(error, '') FROM outbox")
	if err != nil {
		t.Fatal(err)
	}
	defer found.Close()
	for found.Next() {
		var id, reason string
		if err := found.Scan(&id, &reason); err != nil {
			t.Fatal(err)
		}
		kept[id] = reason
	}
	for id, isBad := range bad {
		reason, here := kept[id]
		switch {
		case here && reason == "":
			t.Errorf("%s was left", id)
		case !here && runs[id] != 1, runs[id] > 1:
			t.Errorf("%s has run %d times; kept: %v", id, runs[id], here)
		case isBad != strings.HasPrefix(reason, "cost is 0"):
			t.Errorf("%s is kept with %q", id, reason)
		case here && !isBad && runs[id] > 0 && !strings.Contains(reason, "may have been accepted"):
			t.Errorf("%s has run and is kept with %q", id, reason)
		}
	}
}
