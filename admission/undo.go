package admission

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"github.com/anteroom/anteroom/admission/audit"
)

// undone is the field of the audit log that has the seq of the entry that was undone.
const undone = "undone"

// settings are the live fields that Patch changes.
var settings = []string{"rate", "burst", "max_active", "paused", "draining", "message", "method", "on_sold_out", "challenge", "session.ttl", "enabled", "events"}

// ErrNotReversible is returned by Undo for an entry other than a change of live settings.
var ErrNotReversible = errors.New("the entry is not a change of live settings")

// Reversible reports whether an entry is a change of live settings only, which Undo can take back.
func Reversible(e *Entry) bool {
	changed := false
	for _, c := range e.Changes {
		if c.Field == undone {
			continue
		}
		if !slices.Contains(settings, c.Field) {
			return false
		}
		changed = changed || !equal(c.Before, c.After)
	}
	return changed
}

// Undoes returns the seq of the entry that an entry has undone, 0 for other entries, and its other changes.
func Undoes(e *Entry) (seq int64, changes []Change) {
	for _, c := range e.Changes {
		if c.Field == undone && c.After != nil {
			seq, _ = strconv.ParseInt(*c.After, 10, 64)
			continue
		}
		changes = append(changes, c)
	}
	return seq, changes
}

func equal(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }

// InForce reports whether the live fields of a snapshot have the values that an entry has left.
func InForce(s *Snapshot, e *Entry) bool {
	live := s.LiveFields()
	for _, c := range e.Changes {
		if c.Field == undone {
			continue
		}
		var now *string
		for i := 0; i < len(live); i += 2 {
			if live[i] == c.Field {
				now = &live[i+1]
			}
		}
		if !equal(now, c.After) {
			return false
		}
	}
	return true
}

// AuditEntry returns the entry of the room's audit log with a seq; nil where the store does not keep it.
func (r *operators) AuditEntry(ctx context.Context, seq int64) (*Entry, error) {
	list, err := r.auditLog(ctx, audit.Kept)
	if err != nil {
		return nil, err
	}
	for i := range list {
		if list[i].Seq == seq && seq > 0 {
			return &list[i], nil
		}
	}
	return nil, nil
}

// Undo returns the fields of an entry to the values before it, if they have the values after it; it reports false, and changes
// nothing, if one of them was changed since. The audit log names the entry.
func (r *operators) Undo(ctx context.Context, who string, e *Entry) (bool, error) {
	if !Reversible(e) {
		return false, ErrNotReversible
	}
	args := []any{who, r.id, "undo", "note", undone, strconv.FormatInt(e.Seq, 10)}
	for _, c := range e.Changes {
		if c.Field == undone {
			continue
		}
		if c.After == nil {
			args = append(args, "absent", c.Field, "")
		} else {
			args = append(args, "match", c.Field, *c.After)
		}
		if c.Before == nil {
			args = append(args, "clear", c.Field, "")
		} else {
			args = append(args, "set", c.Field, *c.Before)
		}
	}
	return patchIf(ctx, r, args)
}
