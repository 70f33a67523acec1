package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Joining is the result of Fleet.Join.
type Joining struct {
	Reduce bool // the outcomes of the first part, or of all, wait for the reducer
	Sealed bool // it was sealed after Settings.UnsealedAfter
}

// Join does the next step of a split group that a housekeeping of the part on shard n has named: the other parts follow the first one,
// stop_at and silence are decided over all of them, and when the jobs of all have ended, so does the group, in one step of the first
// part. Any process may do so at any time, and again after any of the steps.
func (f fleetJoins) Join(ctx context.Context, n int, group string) (j Joining, err error) {
	own, err := f.shards[n].one(ctx, group)
	if err != nil || own == nil || own.Split < 2 {
		return j, err
	}
	first := own
	p, err := f.partsOf(f.shards[n], &own.GroupSpec)
	if err != nil {
		return j, err
	}
	if own.Part > 0 {
		if first, err = p[0].one(ctx, group); err != nil {
			return j, err
		}
		if first == nil || first.Parts != own.Parts || first.Part != 0 {
			return j, f.shards[n].endOrphan(ctx, own)
		}
		if first.joined() {
			return j, f.shards[n].endPart(ctx, own, first.Status)
		}
		if first.waits && own.waits && first.Sealed == own.Sealed && first.Paused == own.Paused {
			return j, nil
		}
	}
	others, err := f.readParts(ctx, p[0], &first.Group)
	if err != nil {
		return j, err
	}
	whole := first.Group
	whole.merge(others)
	if first.Status == Created && !first.Sealed && whole.silent(p[0].Settings().UnsealedAfter) {
		_, err := f.sealParts(ctx, group, true)
		j.Sealed = err == nil && first.RedriveOf == ""
		return j, err
	}
	if first.Status != Cancelled && !first.Paused && whole.tooMany() {
		g, err := p[0].change(ctx, group, "group_patch", group, 0, "halt", 1)
		if err != nil {
			return j, err
		}
		first.Paused = g.Paused
	}
	settled := first.settled() && len(whole.Away) == 0
	for i, other := range others {
		if i == 0 || other == nil {
			continue
		}
		settled = settled && other.settled()
		if err := p[i].follow(ctx, &first.Group, &other.Group); err != nil {
			return j, err
		}
	}
	switch {
	case !first.Counts():
		j.Reduce = own.Part == 0 && (settled || whole.Status == Running || whole.Status == Created)
	case settled:
		_, _, err = f.joinWhole(ctx, p, first, others, 0, nil)
	}
	return j, err
}

// one returns a group of this shard, nil if there is none.
func (s groupStore) one(ctx context.Context, group string) (*found, error) {
	list, err := s.read(ctx, "id", group)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	return &list[0], nil
}

// silent reports whether no job and no outcome has arrived for so long; see silent_from of lua/lib/bulklife.lua.
func (g *Group) silent(after time.Duration) bool {
	if g.RedriveOf != "" {
		after = min(after, time.Minute)
	}
	last := g.LastAddedAt
	if g.LastOutcomeAt.After(last) {
		last = g.LastOutcomeAt
	}
	return len(g.Away) == 0 && g.ReadAt.Sub(last) >= after
}

// tooMany reports whether enough jobs have failed to stop the group; see too_many of lua/lib/bulkjobs.lua.
func (g *Group) tooMany() bool {
	failed, of := g.Failed+g.Dead, g.Total
	if !g.Sealed {
		of = max(1000, of)
	}
	return g.StopAt.Count > 0 && failed >= g.StopAt.Count || g.StopAt.Share && failed*100000 >= g.StopAt.thousandths()*of
}

// follow makes a part follow the first one of its group.
func (s partStore) follow(ctx context.Context, first, part *Group) (err error) {
	switch {
	case part.Status.Ended() && part.Status != Cancelled || part.Status == Cancelled:
		return nil
	case first.Status == Cancelled:
		_, err = s.Cancel(ctx, part.ID)
	case part.waits && !first.waits:
		err = s.begin(ctx, part.ID)
	case first.Sealed && !part.Sealed:
		_, err = s.SealAbandoning(ctx, part.ID)
	case first.Paused != part.Paused:
		_, err = s.Patch(ctx, part.ID, Patch{Paused: &first.Paused})
	}
	if isCode(err, CodeState) || isCode(err, CodeNotFound) {
		return nil // it has ended since
	}
	return err
}

// begin ends the wait of a part other than the first.
func (s partStore) begin(ctx context.Context, group string) error {
	_, err := s.change(ctx, group, "group_patch", group, 0, "begin", 1)
	return err
}

// endOrphan ends a part whose first part was lost, when its jobs have ended: nobody can read it, and its retention deletes it.
func (s partStore) endOrphan(ctx context.Context, own *found) error {
	switch {
	case !own.Sealed && own.Status == Created && own.silent(s.Settings().UnsealedAfter):
		_, err := s.SealAbandoning(ctx, own.ID)
		return err
	case own.Sealed && own.waits: // the decision whether it may start was lost with the first part
		_, err := s.Cancel(ctx, own.ID)
		return err
	case own.settled():
		return s.endPart(ctx, own, Failed)
	}
	return nil
}

// endPart ends a part, other than the first, whose group has ended.
func (s partStore) endPart(ctx context.Context, own *found, status Status) error {
	if !own.settled() || own.joined() {
		return nil
	}
	_, _, err := s.join(ctx, own.ID, 0, status, "", nil)
	return err
}

// join runs group_join for a part in this shard. joined is false if it had ended before.
func (s partStore) join(ctx context.Context, group string, fence int64, status Status, others string, result []byte) (g Group, joined bool, err error) {
	r, err := s.write(ctx, "group_join", group, fence, statusNumber(status), others, result)
	if err != nil || r.refusal() == "not_found" || r.int(0) != replyJoined {
		return Group{}, false, err
	}
	f, err := parseGroup(list(r.at(1)))
	return f.Group, err == nil, err
}

// joinWhole ends a split group whose parts have settled, and then its other parts. result is that of the reducer; without one, the
// outcomes were counted.
func (f fleetJoins) joinWhole(ctx context.Context, p parts, first *found, others []*found, fence int64, result []byte) (g Group, ok bool, err error) {
	words := othersWords(others)
	for _, n := range first.Lost {
		words += " " + strconv.Itoa(n)
	}
	whole := first.Group
	whole.joinCounts(words)
	status := Completed
	if len(first.Lost) > 0 || whole.Tolerance.Exceeded(whole.Failed+whole.Dead, whole.Total) {
		status = Failed
	}
	if result == nil {
		result = countedResult(&whole, sumCodes(append(others, first)))
	}
	g, ok, err = p[0].join(ctx, first.ID, fence, status, words, result)
	if err != nil || !ok {
		return g, false, err
	}
	if counted := p[0].o.Concluded; counted != nil && fence == 0 && g.Status != Cancelled {
		counted(g.Status, 1)
	}
	errs := p.others(func(i int, s *Store) error {
		if others[i] == nil {
			return nil
		}
		return s.endPart(ctx, others[i], g.Status)
	})
	if err := errors.Join(errs...); err != nil && !errors.Is(err, ErrStore) { // else the housekeeping of the part ends it
		return g, true, err
	}
	return g, true, nil
}

// sumCodes returns the error codes of all parts with their counts, as countedResult reads them.
func sumCodes(all []*found) string {
	n := map[string]int64{}
	for _, p := range all {
		if p == nil {
			continue
		}
		words := strings.Fields(p.failures)
		for i := 0; i+1 < len(words); i += 2 {
			code := words[i]
			if _, known := n[code]; !known && len(n) >= maxCodes {
				code = "other"
			}
			n[code] += asInt(words[i+1])
		}
	}
	var words []string
	for _, code := range slices.Sorted(maps.Keys(n)) {
		words = append(words, code, strconv.FormatInt(n[code], 10))
	}
	return strings.Join(words, " ")
}

// settledParts returns all parts of a group, nil if one has not settled or is away.
func (f fleetJoins) settledParts(ctx context.Context, group string) (p parts, first *found, others []*found, err error) {
	if p, err = f.parts(ctx, group); err != nil {
		return nil, nil, nil, err
	}
	if first, err = p[0].one(ctx, group); err != nil || first == nil || !first.settled() || first.joined() {
		return nil, nil, nil, err
	}
	if others, err = f.readParts(ctx, p[0], &first.Group); err != nil || len(first.Away) > 0 {
		return nil, nil, nil, err
	}
	for _, other := range others {
		if other != nil && !other.settled() {
			return nil, nil, nil, nil
		}
	}
	return p, first, others, nil
}

// OtherParts are the parts of a settled group other than the first.
type OtherParts struct {
	parts parts
	group string
}

// OtherParts returns the parts other than the first, for a reducer, once all have settled; settled is false before. No job of a
// settled part runs again, so a reducer needs to ask only once.
func (f fleetJoins) OtherParts(ctx context.Context, group string) (others OtherParts, settled bool, err error) {
	p, _, _, err := f.settledParts(ctx, group)
	return OtherParts{parts: p, group: group}, p != nil, err
}

// Outcomes returns outcomes of the parts. An empty page is the last. Cursors begin with a plus; any other stands for the beginning.
func (o OtherParts) Outcomes(ctx context.Context, cursor string, limit int) (page Page, err error) {
	p, part, inner := o.parts, 1, ""
	if rest, is := strings.CutPrefix(cursor, "+"); is {
		number, after, _ := strings.Cut(rest, "/")
		n, bad := strconv.Atoi(number)
		if bad != nil || n < 1 || n >= len(p) {
			return Page{}, refuse(CodeInvalid, "cursor %q: use next of the previous page", cursor)
		}
		part, inner = n, after
	}
	for ; part < len(p); part, inner = part+1, "" {
		page, err := p[part].Results(ctx, o.group, inner, limit)
		if isCode(err, CodeNotFound) {
			continue // it was lost
		}
		if err != nil {
			return Page{}, err
		}
		if len(page.Outcomes) > 0 {
			page.Next = fmt.Sprintf("+%d/%s", part, page.Next)
			return page, nil
		}
	}
	return Page{}, nil
}

// FinishSplit is Finish for a split group whose outcomes, of all parts, are reduced.
func (f fleetJoins) FinishSplit(ctx context.Context, group string, fence int64, result []byte) (g Group, ok bool, err error) {
	p, first, others, err := f.settledParts(ctx, group)
	if err != nil || p == nil {
		return Group{}, false, err
	}
	return f.joinWhole(ctx, p, first, others, fence, result)
}
