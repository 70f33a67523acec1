package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/api"
	"github.com/anteroom/anteroom/bulk/client"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/sqltest"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(sqltest.Servers{M: m}) }

// both runs a test with each database.
func both(t *testing.T, test func(t *testing.T, b *bench)) {
	for _, name := range []string{"postgres", "mariadb"} {
		t.Run(name, func(t *testing.T) { test(t, newBench(t, name, nil)) })
	}
}

func server(t testing.TB, name string) *sqltest.Server {
	if name == "postgres" {
		return sqltest.Postgres(t)
	}
	return sqltest.MariaDB(t)
}

const (
	operatorsToken = "a-2f7c0d6a1b9e4f3d"
	acmeToken      = "c-8e1a5b7c3d2f4960"
)

// bench is a bulk worker's API over a real store, and an outbox in a real database.
type bench struct {
	t      testing.TB
	name   string
	db     *sql.DB // of the application
	url    string  // of the database
	store  *store.Store
	client *client.Client
	acme   *client.Client // with the token of a tenant
	// handle stands in front of the API; nil: nothing does.
	handle atomic.Pointer[func(next http.Handler, w http.ResponseWriter, r *http.Request)]
}

func newBench(t testing.TB, name string, change func(*store.Settings)) *bench {
	t.Helper()
	b := &bench{t: t, name: name, url: server(t, name).Database(t)}
	var err error
	if b.db, err = sqltest.Open(b.url); err != nil {
		t.Fatal(err)
	}
	text, err := Table(name, "outbox")
	if err != nil {
		t.Fatal(err)
	}
	b.exec(text)
	set := store.Defaults()
	set.Global = 1e6
	if change != nil {
		change(&set)
	}
	b.store, err = store.New(store.Options{Client: redistest.Client(t), Prefix: redistest.Prefix(t), Timeout: 10 * time.Second, Settings: set})
	if err != nil {
		t.Fatal(err)
	}
	a, err := api.New(api.Options{
		Store: b.store, AllowType: func(kind string) bool { return kind != "unknown" },
		Token: operatorsToken, Tokens: []api.Token{{Name: "acme", Tenants: []string{"acme"}, Token: acmeToken}}, RequireToken: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f := b.handle.Load(); f != nil {
			(*f)(a.Handler(), w, r)
			return
		}
		a.Handler().ServeHTTP(w, r)
	}))
	transport := &http.Transport{}
	open := func(token string) *client.Client {
		c, err := client.New(s.URL, client.Options{HTTP: &http.Client{Transport: transport}, Patience: -1, Token: token})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	b.client, b.acme = open(operatorsToken), open(acmeToken)
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.Close()
		a.Close()
		_ = b.db.Close()
	})
	return b
}

func (b *bench) exec(statement string, args ...any) {
	b.t.Helper()
	if b.name == "postgres" {
		for n := 1; strings.Contains(statement, "?"); n++ {
			statement = strings.Replace(statement, "?", fmt.Sprintf("$%d", n), 1)
		}
	}
	if _, err := b.db.ExecContext(context.Background(), statement, args...); err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
}

// insert inserts rows 0 to n - 1 of a tenant with job ids that begin with prefix.
func (b *bench) insert(tenant, prefix string, n int) {
	b.t.Helper()
	for from := 0; from < n; from += 1000 {
		values := make([]string, min(1000, n-from))
		for i := range values {
			values[i] = fmt.Sprintf(`('%s', 'mail', '{"n": %d}', '%s%d')`, tenant, from+i, prefix, from+i)
		}
		b.exec("INSERT INTO outbox (tenant, type, payload, job_id) VALUES " + strings.Join(values, ","))
	}
}

// count returns the number of rows, with a condition.
func (b *bench) count(where string) (n int) {
	b.t.Helper()
	if err := b.db.QueryRowContext(context.Background(), "SELECT count(*) FROM outbox WHERE "+where).Scan(&n); err != nil {
		b.t.Fatal(err)
	}
	return n
}

func (b *bench) open() *Database {
	b.t.Helper()
	d, err := Open(b.url, "outbox")
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = d.Close() })
	return d
}

func (b *bench) relay(change ...func(*Options)) *Relay {
	b.t.Helper()
	o := Options{Database: b.open(), Client: b.client, Once: true, Interval: 50 * time.Millisecond, day: fixedDay}
	for _, f := range change {
		f(&o)
	}
	return New(o)
}

// once relays all rows, and fails the test if one is left.
func (b *bench) once(change ...func(*Options)) {
	b.t.Helper()
	if err := b.relay(change...).Run(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// left relays all rows and returns the error of those that stay.
func (b *bench) left(change ...func(*Options)) *Left {
	b.t.Helper()
	err := b.relay(change...).Run(b.t.Context())
	l, ok := errors.AsType[*Left](err)
	if !ok {
		b.t.Fatalf("nothing is left: %v", err)
	}
	return l
}

// totals returns the number of jobs of each group.
func (b *bench) totals() map[string]int64 {
	b.t.Helper()
	n := map[string]int64{}
	groups, _, err := b.store.Groups(b.t.Context(), store.Filter{Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	for _, g := range groups {
		n[g.ID] = g.Total
	}
	return n
}

// run runs all jobs that may start, and counts the runs of each by group and id.
func (b *bench) run(runs map[string]int) {
	b.t.Helper()
	for {
		p, err := b.store.Pull(b.t.Context(), 100)
		if err != nil {
			b.t.Fatal(err)
		}
		acks := make([]store.Ack, len(p.Jobs))
		for i, j := range p.Jobs {
			runs[j.ID]++
			acks[i] = store.Ack{Key: j.Key, Fence: j.Fence, Verdict: store.Done, Result: []byte("1")}
		}
		if len(acks) == 0 && p.Next == 0 && !p.More {
			return
		}
		if _, err := b.store.Ack(b.t.Context(), acks); err != nil {
			b.t.Fatal(err)
		}
	}
}

// fixedDay is the day of all groups, so that no test fails when midnight passes.
func fixedDay(time.Time) time.Time { return time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC) }

// ofMail is the id of the nth group of a tenant's mail.
func ofMail(tenant string, n int) string { return groupName(tenant, "mail", fixedDay(time.Time{}), n) }

// today is the id of the first group of a tenant's mail.
func today(tenant string) string { return ofMail(tenant, 1) }

// through changes a database URL to go through a proxy.
func through(u string, p *redistest.FaultProxy) string {
	parsed, err := url.Parse(u)
	if err != nil {
		panic(err)
	}
	if parsed.Scheme == "mysql" {
		return "mysql://admin@" + p.Addr() + parsed.Path + "?sslmode=disable"
	}
	return "postgres://admin@" + p.Addr() + parsed.Path + "?sslmode=disable&search_path=" + parsed.Query().Get("search_path")
}
