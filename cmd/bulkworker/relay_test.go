package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/relay"
	"github.com/anteroom/anteroom/internal/redistest"
	"github.com/anteroom/anteroom/internal/sqltest"
)

// relayProcess starts a relay of a database.
func relayProcess(t *testing.T, p *process, from string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	cmd := exec.Command("bulkworker", append([]string{"relay", "--server", p.url, "--token-file", secretFile(t, operatorsToken), "--batch", "20", "--interval", "50ms"}, args...)...)
	cmd.Env = append(cmd.Environ(), "BULKWORKER_FROM="+from)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd, &out
}

// Two relays are killed again and again while an application commits in any order, and rolls back. Each committed row runs once.
func TestRelay_SurvivesKills(t *testing.T) {
	to := newReceiver(t, nil)
	p := start(t, fmt.Sprintf(`
admin: {token: %s}
store: {url: %q}
processors: {webhook: {url: %q}}
`, operatorsToken, redistest.Server(t).URL(), to.URL+"/job"))
	for _, name := range []string{"postgres", "mariadb"} {
		s := sqltest.Postgres
		if name == "mariadb" {
			s = sqltest.MariaDB
		}
		from := s(t).Database(t)
		db, err := sqltest.Open(from)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		text, err := relay.Table(name, "outbox")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatal(err)
		}
		committed := insertRows(t, db, name)
		stop := make(chan struct{})
		var relays sync.WaitGroup
		for range 2 {
			relays.Go(func() {
				for {
					cmd, _ := relayProcess(t, p, from)
					timer := time.NewTimer(time.Duration(50+rand.N(200)) * time.Millisecond)
					select {
					case <-timer.C:
					case <-stop:
					}
					timer.Stop()
					_ = cmd.Process.Kill()
					_ = cmd.Wait() // killed
					select {
					case <-stop:
						return
					default:
					}
				}
			})
		}
		want := <-committed
		close(stop)
		relays.Wait()
		eventually(t, func() error { // the database releases the locks of the killed
			cmd, out := relayProcess(t, p, from, "--once", "--compress", "zstd")
			if err := cmd.Wait(); err != nil {
				return fmt.Errorf("%w\n%s", err, out)
			}
			var n int
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM outbox").Scan(&n); err != nil || n > 0 {
				return fmt.Errorf("%d rows are left: %w", n, err)
			}
			return nil
		})
		runs := map[string]int{}
		eventually(t, func() error {
			clear(runs)
			for _, d := range to.got("/job") {
				if id := d.header.Get("X-Bulk-Job"); strings.HasPrefix(id, name) {
					runs[id]++
				}
			}
			if len(runs) < len(want) {
				return fmt.Errorf("%d of %d jobs have run", len(runs), len(want))
			}
			return nil
		})
		for id, n := range runs {
			if !want[id] || n != 1 {
				t.Errorf("%s: %s has run %d times; its row was committed: %v", name, id, n, want[id])
			}
		}
	}
	p.audit()
}

// insertRows commits rows in transactions that overlap, and rolls some back. It returns those that were committed.
func insertRows(t *testing.T, db *sql.DB, name string) <-chan map[string]bool {
	t.Helper()
	var mu sync.Mutex
	committed := map[string]bool{}
	var all sync.WaitGroup
	for worker := range 4 {
		all.Go(func() {
			for n := range 40 {
				tx, err := db.BeginTx(context.Background(), nil)
				if err != nil {
					t.Error(err)
					return
				}
				var ids []string
				for row := range 1 + rand.N(8) {
					id := fmt.Sprintf("%s-%d-%d-%d", name, worker, n, row)
					payload, _ := json.Marshal(id)
					if _, err := tx.ExecContext(context.Background(), fmt.Sprintf("INSERT INTO outbox (tenant, type, payload, job_id) VALUES ('t%d', 'webhook', '%s', '%s')", row%3, payload, id)); err != nil {
						t.Error(err)
					}
					ids = append(ids, id)
				}
				if rand.N(5) == 0 {
					_ = tx.Rollback()
					continue
				}
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
				mu.Lock()
				for _, id := range ids {
					committed[id] = true
				}
				mu.Unlock()
			}
		})
	}
	done := make(chan map[string]bool, 1)
	go func() {
		all.Wait()
		done <- committed
	}()
	return done
}

// SIGTERM ends a relay with 0. Its log and its errors do not show the password.
func TestRelay_StopsAndKeepsItsSecret(t *testing.T) {
	p := startForClients(t)
	pg := sqltest.Postgres(t)
	pg.Exec(t, "CREATE ROLE app LOGIN PASSWORD 'hidden-word'")
	pg.Exec(t, "CREATE SCHEMA app AUTHORIZATION app")
	text, err := relay.Table("postgres", "app.outbox")
	if err != nil {
		t.Fatal(err)
	}
	pg.Exec(t, text)
	pg.Exec(t, "ALTER TABLE app.outbox OWNER TO app")
	pg.Exec(t, `INSERT INTO app.outbox (tenant, type, payload) VALUES ('acme', 'webhook', '{}')`)
	from := "postgres://app:hidden-word@" + pg.Addr() + "/postgres?sslmode=verify-full&sslrootcert=" + pg.CAFile
	cmd, out := relayProcess(t, p, from, "--table", "app.outbox", "--listen", "127.0.0.1:0")
	eventually(t, func() error {
		var n int
		if err := pg.Admin().QueryRowContext(t.Context(), "SELECT count(*) FROM app.outbox").Scan(&n); err != nil || n > 0 {
			return fmt.Errorf("%d rows: %w", n, err)
		}
		return nil
	})
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), `"msg":"listening"`) {
		t.Errorf("%v\n%s", err, out)
	}
	for _, row := range []struct {
		from, want string
		code       int
	}{
		{strings.Replace(from, "hidden", "wrong-hidden", 1), "password authentication failed", 1},
		{strings.Replace(from, ":hidden-word@", ":hidden-word%zz@", 1), "cannot be parsed", 2},
		{"redis://app:hidden-word@127.0.0.1", "postgres://", 2},
		{"mysql://app:hidden-word@127.0.0.1:1/app?sslmode=off", "sslmode", 2},
		{"mysql://app:hidden-word@127.0.0.1:1/app", "connection refused", 3},
		{"postgres://app:hidden-word@127.0.0.1:1/app", "connection refused", 3},
	} {
		cmd, out := relayProcess(t, p, row.from, "--once", "--retry-for", "0s")
		_ = cmd.Wait() // its code is what counts
		if code := cmd.ProcessState.ExitCode(); code != row.code || !strings.Contains(out.String(), row.want) || strings.Contains(out.String(), "hidden-word") {
			t.Errorf("%s: code %d, want %d\n%s", row.want, code, row.code, out)
		}
	}
}
