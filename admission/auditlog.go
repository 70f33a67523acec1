package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission/audit"
)

// Entry is an entry of the audit log, Change a field that it changed.
type (
	Entry  = audit.Entry
	Change = audit.Change
)

// Audit returns the newest entries of the rooms of this process for which in returns true, newest first. A nil in means all.
func (c *Core) Audit(ctx context.Context, limit int, in func(room string) bool) ([]Entry, error) {
	var out []Entry
	ctx, cancel := context.WithTimeout(ctx, c.tickTimeout())
	defer cancel()
	for _, r := range c.all() {
		if in != nil && !in(r.id) {
			continue
		}
		list, err := r.auditLog(ctx, int64(limit))
		if err != nil {
			return nil, err
		}
		out = append(out, list...)
	}
	slices.SortStableFunc(out, func(a, b Entry) int { return int(b.At - a.At) })
	return out[:min(len(out), limit)], nil
}

// AuditLog returns all entries of the room that the store keeps, oldest first.
func (r *operators) AuditLog(ctx context.Context) ([]Entry, error) {
	list, err := r.auditLog(ctx, audit.Kept)
	slices.Reverse(list)
	return list, err
}

// auditLog returns the newest entries, newest first.
func (r *operators) auditLog(ctx context.Context, limit int64) ([]Entry, error) {
	list, err := r.c.o.Client.LRange(ctx, r.keys[keyAudit], 0, limit-1).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	entries := make([]Entry, 0, len(list))
	for _, text := range list {
		e, err := audit.Parse(text)
		if err != nil {
			return nil, err
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// AuditWatch remembers the end of each room's audit log, and records in the log when the store has lost or changed what it remembers.
type AuditWatch struct {
	core  *Core
	log   *slog.Logger
	heads map[string]audit.Head
}

// NewAuditWatch returns a watch that remembers nothing yet.
func NewAuditWatch(core *Core, log *slog.Logger) *AuditWatch {
	return &AuditWatch{core: core, log: log, heads: map[string]audit.Head{}}
}

// auditEvery is the time between two looks. What was written since the last look before a loss is not remembered.
const auditEvery = 2 * time.Second

// Run looks until ctx ends.
func (w *AuditWatch) Run(ctx context.Context) error {
	again := time.NewTicker(auditEvery)
	defer again.Stop()
	for {
		if err := w.Look(ctx); err != nil && !errors.Is(err, ErrStore) && ctx.Err() == nil {
			w.log.ErrorContext(ctx, "cannot read the audit log", "error", err)
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Look compares the log of each room with what is remembered. It is for one goroutine.
func (w *AuditWatch) Look(ctx context.Context) error {
	var faults error
	for _, r := range w.core.all() {
		faults = errors.Join(faults, w.look(ctx, r))
	}
	return faults
}

func (w *AuditWatch) look(ctx context.Context, r *Room) error {
	ctx, cancel := context.WithTimeout(ctx, w.core.tickTimeout())
	defer cancel()
	newest, err := r.auditLog(ctx, 1)
	if err != nil {
		return err
	}
	var head audit.Head
	if len(newest) > 0 {
		head = audit.Head{Seq: newest[0].Seq, Hash: newest[0].Hash}
	}
	known := w.heads[r.id]
	if head == known {
		return nil
	}
	if known.Seq > 0 {
		continues, err := w.continues(ctx, r, known, head)
		if err != nil {
			return err
		}
		if !continues {
			w.log.ErrorContext(ctx, "the store has lost or changed entries of the audit log; the log goes on with an entry chain_lost that has the last known seq and hash", "room", r.id,
				"known_seq", known.Seq, "known_hash", known.Hash, "found_seq", head.Seq)
			if _, err := w.core.scripts.Run(ctx, "audit_continue", []string{r.keys[keyAudit]}, w.core.now(), r.id, known.Seq, known.Hash); err != nil {
				return err
			}
			if newest, err = r.auditLog(ctx, 1); err != nil {
				return err
			}
			head = audit.Head{Seq: newest[0].Seq, Hash: newest[0].Hash}
		}
	}
	w.heads[r.id] = head
	return nil
}

// continues reports whether the entries after known lead to head.
func (w *AuditWatch) continues(ctx context.Context, r *Room, known, head audit.Head) (bool, error) {
	since := head.Seq - known.Seq
	if since <= 0 {
		return false, nil
	}
	list, err := r.auditLog(ctx, min(since+1, audit.Kept))
	if err != nil {
		return false, err
	}
	slices.Reverse(list)
	if list[0].Seq != known.Seq { // trimmed, or written since
		return list[0].Seq > known.Seq, nil
	}
	_, err = audit.Verify(list)
	return err == nil && list[0].Hash == known.Hash, nil
}
