package relay

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestOpen_RefusesURL(t *testing.T) {
	other := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct{ from, want string }{
		{"", "postgres://"},
		{"host/db", "postgres://"},
		{"oracle://u:hidden@h/db", `begins with "oracle://"`},
		{"postgres://u:hidden word@h/db", "%XX"},
		{"postgres://u:hidden@h/db?sslmode=sometimes", "sslmode"},
		{"mysql://u:hidden@h", "names no database"},
		{"mysql://u:hidden@/db", "names no host"},
		{"mysql://u:hidden@h/db?socket=/s", "a host and a socket"},
		{"mysql://u:hidden@h/db?tls=true", "tls is no parameter"},
		{"mysql://u:hidden@h/db?sslmode=verify", `sslmode is "verify"`},
		{"mysql://u:hidden@h/db?sslrootcert=/none", "sslrootcert"},
		{"mysql://u:hidden@h/db?sslmode=verify-full&sslrootcert=" + other, "no certificate"},
		{"mysql://u:hidden@h/db?sslmode=prefer&sslrootcert=" + other, "sslmode=verify-full"},
		{"mysql://u:hidden@localhost/db?sslrootcert=" + other, "sslmode=verify-full"}, // prefer is the default on this machine
		{"mysql://u:hidden@h/db?sslmode=disable&sslrootcert=" + other, "sslmode=verify-full"},
		{"postgres://u:hidden@h/db?sslmode=prefer&sslrootcert=" + other, "sslmode=verify-full"},
		{"postgres://u:hidden@localhost/db?sslrootcert=" + other, "sslmode=verify-full"},
		{"mysql://u:hidden@h/db?sslcert=/none", "sslcert, sslkey"},
	} {
		_, err := Open(row.from, "outbox")
		if err == nil || !strings.Contains(err.Error(), row.want) || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: %v; want %q", row.from, err, row.want)
		}
	}
	if _, err := Open("postgres://h/db", "out box"); err == nil {
		t.Error("a table with a blank is accepted")
	}
}

func TestOpen_ChecksTheServersCertificate(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		s := server(t, b.name)
		s.Exec(t, map[string]string{"postgres": "CREATE ROLE tls LOGIN SUPERUSER PASSWORD 'x'", "mariadb": "SELECT 1"}[b.name])
		u, err := url.Parse(b.url)
		if err != nil {
			t.Fatal(err)
		}
		b.insert("acme", "a", 1)
		foreign := filepath.Join(t.TempDir(), "ca.pem")
		text, err := os.ReadFile(server(t, map[string]string{"postgres": "mariadb", "mariadb": "postgres"}[b.name]).CAFile)
		if err == nil {
			err = os.WriteFile(foreign, text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range []struct{ host, query, wrong string }{
			{s.Addr(), "sslmode=verify-full&sslrootcert=" + foreign, "certificate"},
			{strings.Replace(s.Addr(), "127.0.0.1", "localhost", 1), "sslmode=verify-full&sslrootcert=" + s.CAFile, "certificate is"},
			{s.Addr(), "sslmode=verify-full&sslrootcert=" + s.CAFile, ""},
			{s.Addr(), "sslmode=require", ""},
		} {
			if path := u.Query().Get("search_path"); path != "" {
				row.query += "&search_path=" + path
			}
			d, err := Open(u.Scheme+"://tls:x@"+row.host+u.Path+"?"+row.query, "outbox")
			if err != nil {
				t.Fatal(err)
			}
			err = New(Options{Database: d, Client: b.client, Once: true}).Run(t.Context())
			_ = d.Close()
			if (err == nil) != (row.wrong == "") || err != nil && !strings.Contains(err.Error(), row.wrong) {
				t.Errorf("%s, %s: %v", row.host, row.query, err)
			}
		}
	})
}

// A relay outlives outages of the database; with Once it reports them.
func TestRelay_OutlivesTheDatabase(t *testing.T) {
	b := newBench(t, "postgres", nil)
	p := redistest.Proxy(t, server(t, b.name).Socket())
	b.url = through(b.url, p)
	p.Cut()
	if err := b.relay().Run(t.Context()); err == nil {
		t.Error("no error")
	}
	b.insert("acme", "a", 5)
	reg := prometheus.NewRegistry()
	m := NewMetrics(reg)
	r := b.relay(func(o *Options) { o.Patience, o.Metrics = time.Minute, m })
	done := make(chan error)
	go func() { done <- r.Run(t.Context()) }()
	for testutil.ToFloat64(m.errors.WithLabelValues("database")) == 0 { // it has tried
		b.count("1 = 1")
	}
	p.Heal()
	if err := <-done; err != nil || b.count("1 = 1") != 0 {
		t.Errorf("%v, %d rows are left", err, b.count("1 = 1"))
	}
	if n := testutil.ToFloat64(m.rows.WithLabelValues("accepted")); n != 5 {
		t.Errorf("%v rows are counted", n)
	}
}

func TestRelay_RefusesAnotherTable(t *testing.T) {
	both(t, func(t *testing.T, b *bench) {
		b.exec("ALTER TABLE outbox DROP COLUMN sent_to")
		for range 2 {
			err := b.relay(func(o *Options) { o.Once = false }).Run(t.Context())
			if _, ok := errors.AsType[*Unsuitable](err); !ok || !strings.Contains(err.Error(), "sent_to") && !strings.Contains(err.Error(), "outbox") || !strings.Contains(err.Error(), "--print-table") {
				t.Error(err)
			}
			b.exec("DROP TABLE IF EXISTS outbox")
		}
	})
}

// Long payloads end a batch early; what is not read stays for the next.
func TestRelay_ReadsLongPayloadsInParts(t *testing.T) {
	b := newBench(t, "mariadb", func(s *store.Settings) {})
	for i := range 20 {
		b.exec("INSERT INTO outbox (tenant, type, payload, job_id) VALUES ('acme', 'mail', ?, ?)", `"`+strings.Repeat("x", 1000<<10)+`"`, fmt.Sprint(i))
	}
	d := b.open()
	tx, err := d.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	rows, more, _, err := tx.read(t.Context(), 0, nil, 500)
	if err != nil || !more || len(rows) != 17 {
		t.Errorf("%d rows, more %v, %v", len(rows), more, err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if l := b.left(); l.Aside != 20 { // longer than limits.line
		t.Error(l)
	}
}
