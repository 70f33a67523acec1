package relay

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"
)

const (
	// maxPayload is the longest payload that is read: no server accepts a longer line.
	maxPayload = 1 << 20
	// maxRead ends a batch whose payloads are long.
	maxRead = 16 << 20
)

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?$`)

func badTable(name string) error {
	return fmt.Errorf("the table %q: use letters, digits and _, with a schema in front if needed, as in app.outbox", name)
}

// Database is an outbox table in a database.
type Database struct {
	db    *sql.DB
	d     *dialect
	table string
}

// Open opens the database at a URL, such as postgres://user:password@host/database. It does not connect yet. Its errors do not
// have the URL, which may have a password.
func Open(from, table string) (*Database, error) {
	if !tableName.MatchString(table) {
		return nil, badTable(table)
	}
	u, err := url.Parse(strings.TrimSpace(from))
	if err != nil { // err may have the password
		return nil, errors.New("the database's URL cannot be parsed: write special characters in user and password as %XX; use postgres://user:password@host/database or mysql://…")
	}
	d := dialects[u.Scheme]
	if d == nil {
		return nil, fmt.Errorf("the database's URL begins with %q: use postgres://user:password@host/database or mysql://…", u.Scheme+"://")
	}
	connector, err := d.connect(u)
	if err != nil {
		return nil, fmt.Errorf("the database's URL: %w", err)
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(2)
	db.SetConnMaxIdleTime(idleBound / 2)
	return &Database{db, d, table}, nil
}

// Close closes the connections.
func (b *Database) Close() error { return b.db.Close() }

// Unsuitable is returned when the table is missing, has other columns, or may not be accessed.
type Unsuitable struct{ Err error }

func (e *Unsuitable) Error() string {
	return fmt.Sprintf("the outbox table cannot be used: %v; bulkworker relay --print-table shows its columns", e.Err)
}

// Unwrap returns the database's error.
func (e *Unsuitable) Unwrap() error { return e.Err }

// explain returns an error of the database, wrapped in an Unsuitable if a retry cannot succeed.
func (b *Database) explain(err error) error {
	if err != nil && b.d.missing(err) {
		return &Unsuitable{err}
	}
	return err
}

// row is a row of the table.
type row struct {
	id                  int64
	tenant, kind, jobID string
	group, sentTo       sql.NullString
	seal                bool
	cost                int64
	runAt               any
	size                sql.NullInt64 // of the payload; NULL: there is none
	payload             []byte        // nil: longer than maxPayload
	created             time.Time

	tried  bool // sent_to was set by an earlier batch, so the row may have been sent
	marked bool // sent_to has to be written before the row is sent
	outcome
}

// outcome is the result of a batch for a row.
type outcome struct {
	verdict   verdict
	reason    string // why it is kept aside
	uncertain bool   // kept aside because its job may exist
}

// verdict determines what happens to a row.
type verdict int

const (
	kept     verdict = iota // stays as it is
	accepted                // deleted
	repeated                // deleted; its group had the job already
	aside                   // stays with an error
	unsent                  // sent_to is removed: the row was certainly not accepted
)

// txn is a transaction at read committed: InnoDB's default would lock the gaps between rows, where applications insert.
type txn struct {
	*sql.Tx
	b *Database
}

func (b *Database) begin(ctx context.Context) (txn, error) {
	tx, err := b.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err == nil && b.d.bound != "" {
		_, err = tx.ExecContext(ctx, b.d.bound)
	}
	return txn{tx, b}, err
}

// read locks and returns the next rows in order, at most limit, without those that other relays have locked. more reports whether
// the table may have others; now is the database's time.
func (t txn) read(ctx context.Context, after int64, without []string, limit int) (rows []*row, more bool, now time.Time, err error) {
	args := []any{after}
	filter := ""
	if len(without) > 0 {
		filter = " AND tenant NOT IN (" + markers(t.b.d.marker, 2, len(without), ",") + ")"
		for _, tenant := range without {
			args = append(args, tenant)
		}
	}
	text := t.b.d.payload
	found, err := t.QueryContext(ctx, fmt.Sprintf(`SELECT id, COALESCE(tenant, ''), COALESCE(type, ''), COALESCE(job_id, ''), group_id, sent_to, COALESCE(seal, FALSE),
		COALESCE(cost, 1), run_at, created_at, CURRENT_TIMESTAMP(6), OCTET_LENGTH(%[1]s), CASE WHEN OCTET_LENGTH(%[1]s) <= %[2]d THEN %[1]s END
		FROM %[3]s WHERE id > %[4]s AND error IS NULL%[5]s ORDER BY id LIMIT %[6]d FOR UPDATE SKIP LOCKED`,
		text, maxPayload, t.b.table, t.b.d.marker(1), filter, limit), args...)
	if err != nil {
		return nil, false, now, err
	}
	defer func() { _ = found.Close() }() // Err has its error
	for size := 0; found.Next(); {
		r := new(row)
		var created any
		if err := found.Scan(&r.id, &r.tenant, &r.kind, &r.jobID, &r.group, &r.sentTo, &r.seal, &r.cost, &r.runAt, &created, &now, &r.size, &r.payload); err != nil {
			return nil, false, now, err
		}
		r.tried = r.sentTo.Valid
		r.created, _ = created.(time.Time) // anything else, such as infinity, has no age
		rows = append(rows, r)
		if size += len(r.payload); size > maxRead {
			return rows, true, now, nil
		}
	}
	return rows, len(rows) == limit, now, found.Err()
}

// ids appends the ids of rows to the arguments of a statement.
func ids(args []any, rows []*row) []any {
	for _, r := range rows {
		args = append(args, r.id)
	}
	return args
}

// set sets columns of rows.
func (t txn) set(ctx context.Context, rows []*row, columns []string, values ...any) error {
	if len(rows) == 0 {
		return nil
	}
	sets := make([]string, len(columns))
	for i, c := range columns {
		sets[i] = c + " = " + t.b.d.marker(i+1)
	}
	d := t.b.d
	args := ids(values, rows)
	if d.idsFirst {
		args = append(ids(nil, rows), values...)
	}
	_, err := t.ExecContext(ctx, fmt.Sprintf(d.update, t.b.table, strings.Join(sets, ", "), d.list(len(values)+1, len(rows))), args...)
	return err
}

// mark writes into rows the group to which they are about to be sent.
func (t txn) mark(ctx context.Context, rows []*row) error {
	for mark, rows := range by(rows, func(w *row) string { return w.sentTo.String }) {
		if err := t.set(ctx, rows, []string{"sent_to"}, mark); err != nil {
			return err
		}
	}
	return nil
}

// lock locks the rows again after a commit, and returns those that are still there, unchanged and not locked by others.
func (t txn) lock(ctx context.Context, rows []*row) ([]*row, error) {
	if len(rows) == 0 {
		return nil, nil
	}
	byID := make(map[int64]*row, len(rows))
	for _, r := range rows {
		byID[r.id] = r
	}
	found, err := t.QueryContext(ctx, fmt.Sprintf("SELECT id, sent_to FROM %s WHERE id IN (%s) AND error IS NULL ORDER BY id FOR UPDATE SKIP LOCKED",
		t.b.table, markers(t.b.d.marker, 1, len(rows), ",")), ids(nil, rows)...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }() // Err has its error
	var still []*row
	for found.Next() {
		var id int64
		var to sql.NullString
		if err := found.Scan(&id, &to); err != nil {
			return nil, err
		}
		if byID[id].sentTo == to {
			still = append(still, byID[id])
		}
	}
	return still, found.Err()
}

// apply writes the verdicts of rows.
func (t txn) apply(ctx context.Context, rows []*row) error {
	var gone, free []*row
	for _, r := range rows {
		switch r.verdict {
		case accepted, repeated:
			gone = append(gone, r)
		case unsent:
			free = append(free, r)
		case aside:
			if err := t.setAside(ctx, r); err != nil {
				return err
			}
		case kept:
		}
	}
	if err := t.set(ctx, free, []string{"sent_to"}, nil); err != nil || len(gone) == 0 {
		return err
	}
	_, err := t.ExecContext(ctx, fmt.Sprintf(t.b.d.remove, t.b.table, t.b.d.list(1, len(gone))), ids(nil, gone)...)
	return err
}

// setAside keeps a row out of the way. sent_to of a row whose job may exist stays, so that the row is not sent elsewhere when its
// error is removed.
func (t txn) setAside(ctx context.Context, r *row) error {
	reason := []rune(r.reason)
	to := r.sentTo
	if !r.uncertain {
		to = sql.NullString{}
	}
	return t.set(ctx, []*row{r}, []string{"error", "sent_to"}, string(reason[:min(len(reason), 1000)]), to)
}

// has reports whether the table has rows of a group that are still to be sent.
func (t txn) has(ctx context.Context, group string) (bool, error) {
	var one int
	err := t.QueryRowContext(ctx, fmt.Sprintf("SELECT 1 FROM %s WHERE group_id = %s AND error IS NULL AND NOT seal LIMIT 1", t.b.table, t.b.d.marker(1)), group).Scan(&one)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}
