package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/client"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestRelay_MovesAllRows(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		b.insert("acme", "a", 1200)
		b.insert("other", "o", 3)
		b.exec(`INSERT INTO outbox (tenant, type, payload, group_id, cost, run_at) VALUES ('acme', 'sms', '"x<y"', 'spring', 7, '2037-01-02 03:04:05.678901')`)
		b.once()
		if n := b.count("1 = 1"); n != 0 {
			t.Errorf("%d rows are left", n)
		}
		if got := b.totals(); len(got) != 3 || got[today("acme")] != 1200 || got[today("other")] != 3 || got["spring"] != 1 {
			t.Error(got)
		}
		// In the order of their ids.
		p, err := b.store.Pull(t.Context(), 5)
		if err != nil || len(p.Jobs) == 0 {
			t.Fatal(p, err)
		}
		for i, j := range p.Jobs[:min(3, len(p.Jobs))] {
			if j.Group == today("acme") && (j.ID != fmt.Sprintf("a%d", i) || string(j.Payload) != fmt.Sprintf(`{"n":%d}`, i)) {
				t.Errorf("job %d is %s: %s", i, j.ID, j.Payload)
			}
		}
		b.once()
	})
}

func TestRelay_KeepsBadRowsAside(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		b.exec(`INSERT INTO outbox (tenant, type, payload, job_id) VALUES ('acme', 'mail', '1', 'good')`)
		if b.name == "postgres" {
			b.exec("ALTER TABLE outbox ALTER payload TYPE text")
		} else {
			b.exec("ALTER TABLE outbox MODIFY payload LONGTEXT")
		}
		rows := []struct{ columns, values, want string }{
			{"payload", "'{'", "payload is not valid JSON"},
			{"payload", "NULL", "payload is NULL"},
			{"payload", "'\"" + strings.Repeat("x", 100<<10) + "\"'", "limits.line"},
			{"payload", "'\"" + strings.Repeat("x", maxPayload) + "\"'", "payload has 1048578 bytes"},
			{"payload, job_id", "'1', ''", "job_id is empty"},
			{"payload, job_id", "'1', 'a b'", "id has a character"},
			{"payload, cost", "'1', 0", "cost is 0"},
			{"payload, cost", "'1', 1001", "cost"},
			{"payload, group_id", "'1', 'a b'", "id"},
			{"payload, group_id", "'1', 'foreign'", `group "foreign" does not belong to tenant "acme"`},
			{"payload, seal", "'1', TRUE", "seal is set and group_id is NULL"},
		}
		if b.name == "postgres" {
			rows = append(rows, struct{ columns, values, want string }{"payload, run_at", "'1', 'infinity'", "run_at is not a time"},
				struct{ columns, values, want string }{"payload, run_at", "'1', '20000-01-01'", "run_at is outside"})
		}
		if _, _, err := b.store.CreateGroup(t.Context(), store.GroupSpec{ID: "foreign", Tenant: "other", Type: "mail"}); err != nil {
			t.Fatal(err)
		}
		for _, row := range rows {
			b.exec("INSERT INTO outbox (tenant, type, " + row.columns + ") VALUES ('acme', 'mail', " + row.values + ")")
		}
		b.exec(`INSERT INTO outbox (tenant, type, payload) VALUES ('no tenant', 'mail', '1'), ('acme', 'unknown', '1')`)
		b.exec(`INSERT INTO outbox (tenant, type, payload, job_id) VALUES ('acme', 'mail', '1', 'last')`)
		l := b.left()
		if l.Aside != len(rows)+2 || len(l.Waiting) > 0 {
			t.Error(l)
		}
		if n := b.totals()[today("acme")]; n != 2 {
			t.Errorf("%d good rows", n)
		}
		found, err := b.db.QueryContext(t.Context(), "SELECT error FROM outbox WHERE sent_to IS NULL ORDER BY id")
		if err != nil {
			t.Fatal(err)
		}
		defer found.Close()
		i := 0
		for ; found.Next(); i++ {
			var text string
			want := "tenant: is not allowed"
			if i < len(rows) {
				want = rows[i].want
			} else if i > len(rows) {
				want = "has no handler"
			}
			if err := found.Scan(&text); err != nil || !strings.Contains(text, want) {
				t.Errorf("row %d: %q, %v; want %q", i, text, err, want)
			}
		}
		if i != len(rows)+2 {
			t.Errorf("%d rows are aside", i)
		}

		// A corrected row goes.
		b.exec("UPDATE outbox SET error = NULL, payload = '1' WHERE payload = '{'")
		b.once()
		if n := b.totals()[today("acme")]; n != 3 || b.count("1 = 1") != len(rows)+1 {
			t.Errorf("%d good rows; %d are left", n, b.count("1 = 1"))
		}
	})
}

// Ids are given in one order and committed in another. The relay holds no lock that an application would wait for.
func TestRelay_FindsRowsCommittedLate(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		late, err := b.db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := late.ExecContext(t.Context(), `INSERT INTO outbox (tenant, type, payload, job_id) VALUES ('acme', 'mail', '1', 'late')`); err != nil {
			t.Fatal(err)
		}
		b.insert("acme", "early", 10)
		inserted := false
		hook := func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/jobs") && !inserted {
				inserted = true
				b.insert("acme", "meanwhile", 1) // would hang at a lock
			}
			next.ServeHTTP(w, r)
		}
		b.handle.Store(&hook)
		b.once()
		if n := b.totals()[today("acme")]; n != 11 || !inserted {
			t.Fatalf("%d rows", n)
		}
		if err := late.Commit(); err != nil {
			t.Fatal(err)
		}
		b.once()
		if n := b.totals()[today("acme")]; n != 12 || b.count("1 = 1") != 0 {
			t.Errorf("%d rows", n)
		}
	})
}

func TestRelay_SeveralShareTheTable(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		var requests atomic.Int64
		hook := func(next http.Handler, w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			next.ServeHTTP(w, r)
		}
		b.handle.Store(&hook)
		b.insert("acme", "a", 2000)
		var all sync.WaitGroup
		for range 3 {
			r := b.relay(func(o *Options) { o.Batch = 50; o.Patience = time.Minute })
			all.Go(func() {
				if err := r.Run(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		b.once()
		runs := map[string]int{}
		b.run(runs)
		if n := b.totals()[today("acme")]; n != 2000 || len(runs) != 2000 || b.count("1 = 1") != 0 {
			t.Errorf("%d jobs, %d of them have run, %d rows are left", n, len(runs), b.count("1 = 1"))
		}
		if n := requests.Load(); n > 80 { // 40 batches and some that were sent twice
			t.Errorf("%d requests: the relays do each other's work", n)
		}
	})
}

// A tenant whose quota is full does not block another, and its rows go in their order when there is room.
func TestRelay_WaitsForATenantAlone(t *testing.T) {
	b := newBench(t, "postgres", func(s *store.Settings) { s.PendingPerTenant = 4 })
	b.insert("full", "f", 20)
	b.insert("acme", "a", 3)
	l := b.left(func(o *Options) { o.Batch = 5 })
	if len(l.Waiting) != 1 || !strings.Contains(l.Error(), "pending_per_tenant") || b.totals()[today("acme")] != 3 {
		t.Error(l, b.totals())
	}
	runs := map[string]int{}
	for range 100 {
		b.run(runs)
		if b.count("1 = 1") == 0 {
			break
		}
		if err := b.relay(func(o *Options) { o.Batch = 4 }).Run(t.Context()); err != nil {
			if _, ok := errors.AsType[*Left](err); !ok {
				t.Fatal(err)
			}
		}
	}
	if len(runs) != 23 || slices.Max(slices.Collect(maps.Values(runs))) != 1 {
		t.Error(runs)
	}
}

// The token is not for a tenant: its rows wait, whether they were sent before or not.
func TestRelay_WaitsForAToken(t *testing.T) {
	b := newBench(t, "mariadb", nil)
	b.insert("other", "o", 2)
	b.insert("acme", "a", 2)
	b.exec("UPDATE outbox SET sent_to = 'unknown' WHERE job_id = 'o1'")
	l := b.left(func(o *Options) { o.Client = b.acme })
	if len(l.Waiting) != 1 || !strings.Contains(l.Error(), "wrong_tenant") || l.Aside != 0 || b.totals()[today("acme")] != 2 || b.count("error IS NULL") != 2 {
		t.Error(l, b.totals())
	}
	wrong, err := client.New("http://127.0.0.1:1", client.Options{Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.relay(func(o *Options) { o.Client = wrong }).Run(t.Context()); err == nil || b.count("error IS NULL") != 2 {
		t.Error(err)
	}
}

// The id of a group has the day of the database.
func TestRelay_NamesGroupsByDay(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		b.insert("acme", "a", 2)
		before := time.Now()
		b.once(func(o *Options) { o.day = nil })
		got := b.totals()
		if got[groupName("acme", "mail", before, 1)] != 2 && got[groupName("acme", "mail", time.Now(), 1)] != 2 { // midnight may have passed
			t.Error(got)
		}
	})
}

// A row with seal ends a group of the application after all its rows.
func TestRelay_SealsAfterTheLastRow(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		b.exec(`INSERT INTO outbox (tenant, type, payload, group_id, seal) VALUES ('acme', 'mail', NULL, 'spring', TRUE)`) // even in front of them
		b.exec(`INSERT INTO outbox (tenant, type, payload, group_id) VALUES ('acme', 'mail', '1', 'spring'), ('acme', 'sms', '2', 'spring'), ('acme', 'mail', '3', 'spring')`)
		b.exec(`INSERT INTO outbox (tenant, type, payload, group_id, seal) VALUES ('acme', 'mail', NULL, 'nothing', TRUE)`)
		b.once(func(o *Options) { o.Batch = 2 })
		for id, total := range map[string]int64{"spring": 3, "nothing": 0} {
			if g, err := b.store.Group(t.Context(), id); err != nil || !g.Sealed || g.Total != total || g.Tenant != "acme" {
				t.Errorf("%s: %+v, %v", id, g, err)
			}
		}
		if b.count("1 = 1") != 0 {
			t.Error("rows are left")
		}
		// A group that is deleted meanwhile is no obstacle.
		r := b.relay()
		b.exec(`INSERT INTO outbox (tenant, type, payload, group_id) VALUES ('acme', 'mail', '1', 'short')`)
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.store.Seal(t.Context(), "short"); err != nil {
			t.Fatal(err)
		}
		b.remove("short")
		b.exec(`INSERT INTO outbox (tenant, type, group_id, seal) VALUES ('acme', 'mail', 'short', TRUE)`)
		if err := r.Run(t.Context()); err != nil || b.count("1 = 1") != 0 {
			t.Error(err)
		}
		// A row that comes too late for its group is kept, and not sent to another.
		b.exec(`INSERT INTO outbox (tenant, type, payload, group_id) VALUES ('acme', 'mail', '4', 'spring')`)
		if l := b.left(); l.Aside != 1 || b.count(`error = 'group "spring" is sealed: it accepts no more jobs'`) != 1 {
			t.Error(l)
		}
	})
}

// The groups of the relay are sealed after a silence, or by an operator; new rows get another one.
func TestRelay_FindsAnotherGroup(t *testing.T) {
	b := newBench(t, "postgres", nil)
	running := b.relay()
	for i := range 3 {
		b.insert("acme", fmt.Sprintf("a%d-", i), 2)
		if err := running.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := b.store.Seal(t.Context(), ofMail("acme", 1+i)); err != nil {
			t.Fatal(err)
		}
	}
	b.insert("acme", "b", 2)
	b.once() // another process
	want := map[string]int64{}
	for n := range 4 {
		want[ofMail("acme", 1+n)] = 2
	}
	if got := b.totals(); !maps.Equal(got, want) {
		t.Error(got)
	}
}

// The response to a batch is lost, and the group is sealed, or even gone, before the batch is sent again.
func TestRelay_AsksForJobsOfASealedGroup(t *testing.T) {
	for _, row := range []struct {
		name   string
		before bool // the request does not reach the server
		then   func(b *bench, group string)
		jobs   int64 // in all groups, in the end
		aside  int
	}{
		{"sealed", false, func(*bench, string) {}, 3, 0},
		{"sealed, without the jobs", true, func(*bench, string) {}, 3, 0},
		{"ended", false, func(b *bench, _ string) { b.run(map[string]int{}) }, 3, 0},
		{"past its retention", false, func(b *bench, group string) { b.expire(group) }, 3, 3},
		{"deleted", false, func(b *bench, group string) { b.remove(group) }, 0, 3},
		{"deleted, without the jobs", true, func(b *bench, group string) { b.remove(group) }, 0, 3}, // in doubt, aside
		{"deleted, and a new row creates it again", false, func(b *bench, group string) {
			b.remove(group)
			b.insert("acme", "b", 1)
		}, 1, 3},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := newBench(t, "postgres", func(s *store.Settings) {
				if strings.HasPrefix(row.name, "past") {
					s.KeepJobs = time.Millisecond
				}
			})
			b.insert("acme", "a", 3)
			lose := func(next http.Handler, w http.ResponseWriter, r *http.Request) {
				if !strings.HasSuffix(r.URL.Path, "/jobs") {
					next.ServeHTTP(w, r)
					return
				}
				if !row.before {
					next.ServeHTTP(discard{w.Header()}, r)
				}
				panic(http.ErrAbortHandler)
			}
			b.handle.Store(&lose)
			if err := b.relay().Run(t.Context()); err == nil || b.count("sent_to IS NOT NULL") != 3 {
				t.Fatal(err)
			}
			b.handle.Store(nil)
			group := today("acme")
			if _, err := b.store.Seal(t.Context(), group); err != nil {
				t.Fatal(err)
			}
			row.then(b, group)
			if row.aside == 0 {
				b.once()
			} else if l := b.left(); l.Aside != row.aside || b.count("error LIKE '%may have been accepted before%' AND sent_to IS NOT NULL") != row.aside {
				t.Error(l)
			}
			var jobs int64
			for _, n := range b.totals() {
				jobs += n
			}
			if jobs != row.jobs || b.count("1 = 1") != row.aside {
				t.Errorf("%v, %d rows", b.totals(), b.count("1 = 1"))
			}
			if row.aside > 0 { // an operator decides
				b.exec("UPDATE outbox SET error = NULL")
				b.left() // not decided yet
				b.exec("UPDATE outbox SET error = NULL, sent_to = NULL")
				b.once()
			}
		})
	}
}

// A request of a dead relay is delayed until its group is deleted and another one has its name.
func TestRelay_LateRequestAddsNothing(t *testing.T) {
	b := newBench(t, "postgres", nil)
	b.insert("acme", "a", 3)
	late := make(chan func(), 1)
	delay := func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/jobs") {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		again := r.Clone(context.WithoutCancel(r.Context()))
		again.Body = io.NopCloser(bytes.NewReader(body))
		late <- func() { next.ServeHTTP(discard{http.Header{}}, again) }
		panic(http.ErrAbortHandler)
	}
	b.handle.Store(&delay)
	if err := b.relay().Run(t.Context()); err == nil {
		t.Fatal("the request has a response")
	}
	b.handle.Store(nil)
	b.once() // another relay
	group := today("acme")
	if got := b.totals(); got[group] != 3 {
		t.Fatal(got)
	}
	if _, err := b.store.Seal(t.Context(), group); err != nil {
		t.Fatal(err)
	}
	b.remove(group)
	b.insert("acme", "b", 1)
	b.once()
	(<-late)()
	if got := b.totals(); !maps.Equal(got, map[string]int64{group: 1}) {
		t.Error(got)
	}
}

// Another relay sends a row, and dies, between the commit of its mark and the next transaction of the relay that marked it.
func TestRelay_NoticesThatAnotherSentItsRows(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		b.insert("acme", "a", 3)
		other := b.relay()
		proxy := redistest.Proxy(t, server(t, b.name).Socket())
		b.url = through(b.url, proxy)
		first := b.relay()
		lose := func(next http.Handler, _ http.ResponseWriter, r *http.Request) {
			next.ServeHTTP(discard{http.Header{}}, r)
			if strings.HasSuffix(r.URL.Path, "/jobs") {
				panic(http.ErrAbortHandler)
			}
		}
		var begun atomic.Int32
		proxy.DropReads(func(command []byte) bool {
			if bytes.Contains(command, begins[b.name]) && begun.Add(1) == 2 {
				b.handle.Store(&lose)
				if err := other.Run(t.Context()); err == nil {
					t.Error("the request has a response")
				}
				b.handle.Store(nil)
				if _, err := b.store.Seal(t.Context(), today("acme")); err != nil {
					t.Error(err)
				}
			}
			return false
		})
		if err := first.Run(t.Context()); err != nil {
			t.Error(err)
		}
		b.once()
		if got := b.totals(); begun.Load() < 2 || !maps.Equal(got, map[string]int64{today("acme"): 3}) {
			t.Error(begun.Load(), got)
		}
	})
}

// begins is how a transaction begins in the protocol of a database.
var begins = map[string][]byte{"postgres": []byte("BEGIN"), "mariadb": []byte("START TRANSACTION")}

// discard is a response that gets lost.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

// expire ends a group and deletes its outcomes.
func (b *bench) expire(group string) {
	b.t.Helper()
	b.run(map[string]int{})
	b.tend(group, func() bool {
		page, err := b.store.Results(b.t.Context(), group, "", 10)
		return err == nil && len(page.Outcomes) == 0
	})
}

// remove ends a group and deletes it.
func (b *bench) remove(group string) {
	b.t.Helper()
	b.run(map[string]int{})
	if gone, err := b.store.Delete(b.t.Context(), group, time.Minute); err != nil || !gone {
		b.t.Fatal(gone, err)
	}
}

func (b *bench) tend(group string, done func() bool) {
	b.t.Helper()
	for range 1000 {
		if _, err := b.store.Tend(b.t.Context(), group); err != nil {
			b.t.Fatal(err)
		}
		if done() {
			return
		}
	}
	b.t.Fatal("the outcomes stay")
}

func TestRelay_StopsBetweenBatches(t *testing.T) {
	b := newBench(t, "postgres", nil)
	b.insert("acme", "a", 10)
	ctx, stop := context.WithCancel(t.Context())
	hook := func(next http.Handler, w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/jobs") {
			stop() // the batch goes on
		}
		next.ServeHTTP(w, r)
	}
	b.handle.Store(&hook)
	if err := b.relay(func(o *Options) { o.Once, o.Batch = false, 4 }).Run(ctx); err != nil {
		t.Fatal(err)
	}
	if n := b.count("1 = 1"); n != 6 || b.count("sent_to IS NOT NULL") != 0 {
		t.Errorf("%d rows are left", n)
	}
}
