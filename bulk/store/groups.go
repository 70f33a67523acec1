package store

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// groupRefusal returns the error for a script's refusal concerning a group.
func groupRefusal(reason, group string, r reply) error {
	switch reason {
	case "":
		return nil
	case "not_found":
		return refuse(CodeNotFound, "group %q: no group has this id, or its retention has passed", group)
	case "sealed":
		return refuse(CodeSealed, "group %q is sealed: it accepts no more jobs; create a new group for them", group)
	case "quota":
		return tooManyJobs(r.int(1), r.int(3), r.int(4), r.string(2))
	case "operators_only":
		field := map[string]string{"level": "priority", "base": "base_priority"}[r.string(1)]
		return refuse(CodeOperators, "%s: an operator has set it for group %q, and it counts among tenants; ask an operator to change it", cmp.Or(field, r.string(1)), group)
	case "wrong_state":
		return refuse(CodeState, "group %q is %s: this action is no longer possible", group, statusOf(r.int(1)))
	case "past":
		return refuse(CodeInvalid, "expires_at of group %q has passed already: the store's time is %s", group, micros(r.int(1)).Format(time.RFC3339))
	case "order":
		return refuse(CodeInvalid, "start_at %s of group %q: must be before its expires_at %s, or no job could ever start", micros(r.int(1)).Format(time.RFC3339), group, micros(r.int(2)).Format(time.RFC3339))
	case "expired":
		return refuse(CodeState, "group %q expired at %s: expires_at can no longer be changed; create a new group for the remaining work", group, micros(r.int(1)).Format(time.RFC3339))
	case "chunk_open":
		return refuse(CodeHalfIn, "group %q has %d incomplete chunks: send each again with its Idempotency-Key, then seal; or seal with abandon_chunks if their sender is gone", group, r.int(1))
	}
	return fmt.Errorf("the store replied %q for group %q", reason, group)
}

// tooManyJobs returns the refusal of new jobs with which a tenant would have more than a setting allows.
func tooManyJobs(has, asked, most int64, setting string) error {
	out := "wait until some have ended and send this again"
	if asked > most {
		out = fmt.Sprintf("send at most %d at a time", most)
	}
	return refuse(CodeQuota, "tenant has %d unfinished jobs, and %d more were sent: %s is %d; %s", has, asked, setting, most, out)
}

// Seal ends the submission of jobs, so that the group can complete. Sealing again is no error. A group with an
// incomplete chunk is refused with CodeHalfIn.
func (s groupStore) Seal(ctx context.Context, group string) (Group, error) {
	return s.change(ctx, group, "group_seal", group, flag(false))
}

// SealAbandoning is Seal for a group with incomplete chunks whose sender is gone. Their accepted jobs run; the rest
// of such a chunk is refused with CodeSealed.
func (s groupStore) SealAbandoning(ctx context.Context, group string) (Group, error) {
	return s.change(ctx, group, "group_seal", group, flag(true))
}

// change runs a script that changes a group and returns the changed group.
func (s groupStore) change(ctx context.Context, group, script string, args ...any) (Group, error) {
	r, err := s.write(ctx, script, args...)
	if err != nil {
		return Group{}, err
	}
	if err := groupRefusal(r.refusal(), group, r); err != nil {
		return Group{}, err
	}
	s.concluded(r, 1)
	g, err := parseGroup(list(r.at(0)))
	return g.Group, err
}

// concluded reports the groups that a script has ended, from index i of its reply on.
func (s *shard) concluded(r reply, i int) {
	if s.o.Concluded == nil {
		return
	}
	for k, status := range []Status{Completed, Failed} {
		if n := r.int(i + k); n > 0 {
			s.o.Concluded(status, n)
		}
	}
}

// Patch changes a group's live fields, including pause and resume.
func (s groupStore) Patch(ctx context.Context, group string, p Patch) (Group, error) {
	args := []any{group, flag(p.Own)}
	if p.whole != nil {
		args = append(args, "shards", p.whole.shards)
		if p.whole.Rate != nil {
			args = append(args, "whole_rate", thousandths(*p.whole.Rate))
		}
		if p.whole.Concurrency != nil {
			args = append(args, "whole_conc", *p.whole.Concurrency)
		}
	}
	check := GroupSpec{ID: "x", Tenant: "x", Type: "x"}
	if p.Weight != nil {
		if check.Weight = *p.Weight; check.Weight == 0 {
			check.Weight = -1
		}
		args = append(args, "weight", thousandths(*p.Weight))
	}
	if p.Rate != nil {
		check.Rate = *p.Rate
		args = append(args, "rate", thousandths(*p.Rate))
	}
	if p.Concurrency != nil {
		check.Concurrency = *p.Concurrency
		args = append(args, "conc", *p.Concurrency)
	}
	if p.BasePriority != nil {
		check.BasePriority = *p.BasePriority
		args = append(args, "base", *p.BasePriority)
	}
	if p.Level != nil {
		if check.Level = *p.Level; check.Level == "" {
			check.Level = "\"\""
		}
		args = append(args, "level", levelNumbers[*p.Level])
	}
	if p.StopAt != nil {
		check.StopAt = *p.StopAt
		args = append(args, "stop_count", p.StopAt.Count, "stop_share", p.StopAt.thousandths())
	}
	if p.StartAt != nil {
		args = append(args, "start_at", sinceEpoch(*p.StartAt))
	}
	if p.ExpiresAt != nil {
		args = append(args, "expires", sinceEpoch(*p.ExpiresAt))
	}
	if p.Quiet != nil {
		check.Quiet = *p.Quiet
		args = append(args, "quiet", quietWords(*p.Quiet, s.today()))
	}
	if p.Paused != nil {
		args = append(args, "paused", flag(*p.Paused))
	}
	if err := check.Validate(); err != nil {
		return Group{}, err
	}
	if len(args) == 2 {
		return s.Group(ctx, group)
	}
	return s.change(ctx, group, "group_patch", args...)
}

// releaseBound is how many jobs one step of Release moves.
const releaseBound = 500

// Release lifts the delays that a group's downstream asked for: the gate closed by a Retry-After, and the waits of
// jobs that were refused, are to be retried, or crashed. Limits, breakers and run_at stay in force.
func (s groupStore) Release(ctx context.Context, group string) (g Group, jobs int64, err error) {
	for cursor := ""; ; {
		r, err := s.write(ctx, "group_release", group, cursor, releaseBound)
		if err != nil {
			return Group{}, jobs, err
		}
		if err := groupRefusal(r.refusal(), group, r); err != nil {
			return Group{}, jobs, err
		}
		jobs += r.int(0)
		if cursor = r.string(1); cursor == "" {
			break
		}
	}
	g, err = s.Group(ctx, group)
	return g, jobs, err
}

// Cancel ends a group: no more of its jobs start. Cancelling again is no error; an ended group is refused.
func (s groupStore) Cancel(ctx context.Context, group string) (Group, error) {
	return s.change(ctx, group, "group_patch", group, 0, "cancel", 1)
}

// Delete deletes an ended group with all its data, including dead letters. From now on every other operation on the
// group is refused with CodeNotFound. Delete is refused while the group's reduction, callback or redrive is in
// progress. gone is false if the deletion takes longer than patience; housekeeping then does the rest.
func (s groupStore) Delete(ctx context.Context, group string, patience time.Duration) (gone bool, err error) {
	return s.delete(ctx, group, patience, func(Tended) error { return ErrStore })
}

// delete is Delete; chain does what a step names for other shards. If it cannot, housekeeping continues later.
func (s groupStore) delete(ctx context.Context, group string, patience time.Duration, chain func(t Tended) error) (gone bool, err error) {
	if err := s.markDeleted(ctx, group, false); err != nil {
		return false, err
	}
	chained := false
	for until := time.Now().Add(patience); time.Now().Before(until) && ctx.Err() == nil; {
		t, err := s.Tend(ctx, group)
		if err != nil || t.Removed {
			return t.Removed, nil //nolint:nilerr // housekeeping continues
		}
		if t.Chained && (chained || chain(t) != nil) {
			return false, nil
		}
		chained = t.Chained
		if !t.Again { // its tenant, which is deleted with it, still has used capacity of its limit
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
	return false, nil
}

// markDeleted marks a group for deletion. With check it changes nothing, and returns the error that the mark would return.
func (s groupStore) markDeleted(ctx context.Context, group string, check bool) error {
	r, err := s.write(ctx, "group_delete", group, flag(check))
	if err != nil {
		return err
	}
	switch r.refusal() {
	case "unswept":
		return refuse(CodeState, "group %q has ended, and its last outcomes are still being recorded: delete it when it has its result", group)
	case "callback":
		return refuse(CodeState, "group %q has a callback that is not accepted yet: delete it when callback is done or failed", group)
	case "open":
		return refuse(CodeState, "group %q is being redriven to %q: delete it when that is sealed, which any redrive of the group and a seal of %q do at once, and silence after a minute", group, r.string(1), r.string(1))
	case "wrong_state":
		if status := statusOf(r.int(1)); status != Aggregating {
			return refuse(CodeState, "group %q is %s: cancel it first, or wait for its end, then delete it", group, status)
		}
		return refuse(CodeState, "group %q is AGGREGATING: delete it when it has its result", group)
	}
	return groupRefusal(r.refusal(), group, r)
}
