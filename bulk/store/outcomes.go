package store

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// Results returns outcomes in the order in which jobs ended, from cursor ("": the beginning): up to limit, and at
// most 1 MiB or one outcome. A page without outcomes is the last. Outcomes of an ended group exist until
// retention.jobs has passed, those that it does not keep (GroupSpec.Results) until they are reduced.
func (s outcomeStore) Results(ctx context.Context, group, cursor string, limit int) (Page, error) {
	page, skip, err := pageCursor(cursor)
	if err != nil {
		return Page{}, err
	}
	p, r, err := s.outcomes(ctx, group, "done", page, skip, "", limit)
	for err == nil && len(p.Outcomes) == 0 && (r.int(0) != page || r.int(1) != int64(skip)) { // none of this page is kept
		page, skip = r.int(0), int(r.int(1))
		p, r, err = s.outcomes(ctx, group, "done", page, skip, "", limit)
	}
	if err != nil {
		return Page{}, err
	}
	for i := range p.Outcomes { // its cursor so far is the index in the reply
		n := page*outcomesPage + int64(skip) + p.Outcomes[i].place + 1
		p.Outcomes[i].Cursor = fmt.Sprintf("%d:%d", n/outcomesPage, n%outcomesPage)
	}
	p.Next = fmt.Sprintf("%d:%d", r.int(0), r.int(1))
	return p, nil
}

// Outcomes is Results for a reducer, which reads no more than the outcomes at its beginning. For at most 1 MiB it
// needs no script, at half the cost.
func (s outcomeStore) Outcomes(ctx context.Context, at *Reduction, cursor string, limit int) (Page, error) {
	const room = 1 << 20
	if at.widest <= 0 || int64(limit)*at.widest > room {
		return s.Results(ctx, at.Group.ID, cursor, limit)
	}
	page, skip, err := pageCursor(cursor)
	if err != nil {
		return Page{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	var fields []string
	for n := page; n <= page+int64(skip+limit-1)/outcomesPage; n++ {
		fields = append(fields, fmt.Sprintf("%s:%d", at.short, n))
	}
	pages, err := s.o.Client.HMGet(ctx, s.keys[keyDone], fields...).Result()
	if err != nil {
		return Page{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	var ids []string
	for _, text := range pages {
		text, there := text.(string)
		if !there {
			break
		}
		ids = append(ids, strings.Split(strings.TrimSuffix(text, "\n"), "\n")...)
	}
	ids = ids[min(skip, len(ids)):min(skip+limit, len(ids))]
	next := page*outcomesPage + int64(skip+len(ids))
	p := Page{Next: fmt.Sprintf("%d:%d", next/outcomesPage, next%outcomesPage)}
	if len(ids) == 0 {
		return p, nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = at.short + "/" + id
	}
	records, err := s.o.Client.HMGet(ctx, s.keys[keyJobs], keys...).Result()
	if err != nil {
		return Page{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	for i, record := range records {
		text, there := record.(string)
		if !there {
			continue // past its retention
		}
		o, err := parseOutcome(ids[i], text)
		if err != nil {
			return Page{}, err
		}
		p.Outcomes = append(p.Outcomes, o)
	}
	return p, nil
}

// outcomesPage is how many outcomes a page of the log has: PAGE of lua/lib/bulk.lua.
const outcomesPage = 100

func pageCursor(cursor string) (page int64, skip int, err error) {
	if cursor == "" {
		return 0, 0, nil
	}
	if n, err := fmt.Sscanf(cursor, "%d:%d", &page, &skip); err != nil || n != 2 || page < 0 || skip < 0 {
		return 0, 0, refuse(CodeInvalid, "cursor %q: use next of the previous page", cursor)
	}
	return page, skip, nil
}

// outcomes parses the reply of outcomes_read except for its first three values.
func (s outcomeStore) outcomes(ctx context.Context, group, kind string, page int64, skip int, after string, limit int) (Page, reply, error) {
	r, err := s.run(ctx, "outcomes_read", group, kind, page, skip, after, max(limit, 1))
	if err != nil {
		return Page{}, nil, err
	}
	if err := groupRefusal(r.refusal(), group, r); err != nil {
		return Page{}, nil, err
	}
	p := Page{Outcomes: make([]Outcome, 0, len(r)/2)}
	place := int64(-1)
	for i := 3; i+1 < len(r); i += 2 {
		if r.string(i) == "" {
			place += r.int(i + 1) // skip outcomes that are not kept
			continue
		}
		place++
		if r[i+1] == nil || r.string(i+1) == notKept {
			continue // past its retention
		}
		o, err := parseOutcome(r.string(i), r.string(i+1))
		if err != nil {
			return Page{}, nil, err
		}
		o.place = place
		p.Outcomes = append(p.Outcomes, o)
	}
	return p, r, nil
}

// notKept is the record of an ended job whose outcome its group does not keep, while jobs may still be added.
const notKept = "K\n"

// parseOutcome parses a record of lua/lib/bulkjobs.lua.
func parseOutcome(id, rec string) (Outcome, error) {
	head, body, ok := strings.Cut(rec, "\n")
	if !ok || head == "" {
		return Outcome{}, fmt.Errorf("job %q: cannot read the record %.40q", id, rec)
	}
	words := strings.Fields(head[1:])
	n := func(i int) int64 {
		if i >= len(words) {
			return 0
		}
		return asInt(words[i])
	}
	o := Outcome{ID: id, Attempts: n(0), At: micros(n(1) * 1000)}
	switch head[0] {
	case 'S':
		o.Status, o.Result = "succeeded", []byte(body)
		if len(words) > 4 {
			o.lasted(n(2), n(3))
			o.Type = strings.TrimPrefix(words[4], "-")
		}
	case 'C':
		o.Status = "cancelled"
	case 'D', 'R', 'F':
		o.Status, o.Error = "dead", body
		if head[0] == 'F' {
			o.Status = "failed"
		}
		size := n(5)
		if head[0] == 'F' && len(words) == 3 {
			break // an earlier version wrote no payload
		}
		if len(words) < 6 || size > int64(len(body)) || size < 0 {
			return Outcome{}, fmt.Errorf("job %q: cannot read the record %.40q", id, rec)
		}
		o.Cost, o.Type, o.Error = n(3), words[4], body[:size]
		if o.Type == "-" {
			o.Type = ""
		}
		if len(words) > 7 {
			o.lasted(n(6), n(7))
		}
		if len(body) > int(size) {
			o.Payload = []byte(body[size:])
		}
	default:
		return Outcome{}, fmt.Errorf("job %q: record %.40q has no outcome", id, rec)
	}
	if (head[0] == 'F' || head[0] == 'D' || head[0] == 'R') && len(words) > 2 {
		o.Code = words[2]
	}
	return o, nil
}

// lasted sets the times from the length of the last run and the job's age at its end, in ms; -1: unknown.
func (o *Outcome) lasted(ran, age int64) {
	if ran >= 0 {
		o.StartedAt = o.At.Add(-time.Duration(ran) * time.Millisecond)
	}
	if age >= 0 {
		o.CreatedAt = o.At.Add(-time.Duration(age) * time.Millisecond)
	}
}

// Dead returns the dead letters of a group with their payloads, without redriven ones: up to limit, and at most 1 MiB
// or one.
func (s outcomeStore) Dead(ctx context.Context, group, cursor string, limit int) (Page, error) {
	p, r, err := s.outcomes(ctx, group, "dead", 0, 0, cursor, limit)
	p.Next = r.string(2)
	return p, err
}
