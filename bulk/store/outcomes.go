package store

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Results reads outcomes in the order in which they came, from cursor ("" is the beginning). Those of a group that has ended are
// there until retention.jobs has passed.
func (s *Store) Results(ctx context.Context, group, cursor string, limit int) (Page, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	short, err := s.short(ctx, group)
	if err != nil {
		return Page{}, err
	}
	page, skip, err := pageCursor(cursor)
	if err != nil {
		return Page{}, err
	}
	var p Page
	for len(p.Outcomes) < max(limit, 1) {
		text, err := s.o.Client.HGet(ctx, s.keys[keyDone], short+":"+strconv.FormatInt(page, 10)).Result()
		if errors.Is(err, redis.Nil) {
			break
		}
		if err != nil {
			return Page{}, fmt.Errorf("%w: %w", ErrStore, err)
		}
		ids := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		full := len(ids) >= idsOfPage
		ids = ids[min(skip, len(ids)):]
		if len(ids) > 0 {
			outcomes, err := s.outcomes(ctx, short, ids)
			if err != nil {
				return Page{}, err
			}
			p.Outcomes = append(p.Outcomes, outcomes...)
			skip += len(ids)
		}
		if !full {
			break
		}
		page, skip = page+1, 0
	}
	p.Next = fmt.Sprintf("%d:%d", page, skip)
	return p, nil
}

// idsOfPage is how many ids lua/lib/bulk.lua puts on one page.
const idsOfPage = 100

func pageCursor(cursor string) (page int64, skip int, err error) {
	if cursor == "" {
		return 0, 0, nil
	}
	if n, err := fmt.Sscanf(cursor, "%d:%d", &page, &skip); err != nil || n != 2 || page < 0 || skip < 0 {
		return 0, 0, refuse(CodeInvalid, "cursor %q: give the one that the page before named", cursor)
	}
	return page, skip, nil
}

func (s *Store) outcomes(ctx context.Context, short string, ids []string) ([]Outcome, error) {
	fields := make([]string, len(ids))
	for i, id := range ids {
		fields[i] = short + "/" + id
	}
	records, err := s.o.Client.HMGet(ctx, s.keys[keyJobs], fields...).Result()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	out := make([]Outcome, 0, len(ids))
	for i, rec := range records {
		text, ok := rec.(string)
		if !ok {
			continue // past its retention
		}
		o, err := parseOutcome(ids[i], text)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

// parseOutcome reads a record as lua/lib/bulkjobs.lua writes it.
func parseOutcome(id, rec string) (Outcome, error) {
	head, body, ok := strings.Cut(rec, "\n")
	if !ok || head == "" {
		return Outcome{}, fmt.Errorf("job %q: record %.40q", id, rec)
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
	case 'F':
		o.Status, o.Error = "failed", body
	case 'C':
		o.Status = "cancelled"
	case 'D', 'R':
		o.Status = "dead"
		size := n(5)
		if len(words) < 6 || size > int64(len(body)) || size < 0 {
			return Outcome{}, fmt.Errorf("job %q: record %.40q", id, rec)
		}
		o.Cost, o.Type, o.Error = n(3), words[4], body[:size]
		if o.Type == "-" {
			o.Type = ""
		}
		if head[0] == 'D' {
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

// Dead reads the dead letters of a group with their payloads, those that were not given to a redrive.
func (s *Store) Dead(ctx context.Context, group, cursor string, limit int) (Page, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	short, err := s.short(ctx, group)
	if err != nil {
		return Page{}, err
	}
	from := "[" + short + "/"
	if cursor != "" {
		from = "(" + short + "/" + cursor
	}
	members, err := s.o.Client.ZRangeByLex(ctx, s.keys[keyDead], &redis.ZRangeBy{Min: from, Max: "(" + short + "0", Count: int64(max(limit, 1))}).Result()
	if err != nil {
		return Page{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	ids := make([]string, len(members))
	for i, m := range members {
		_, ids[i], _ = strings.Cut(m, "/")
	}
	var p Page
	if len(ids) == 0 {
		return p, nil
	}
	if p.Outcomes, err = s.outcomes(ctx, short, ids); err != nil {
		return Page{}, err
	}
	if len(ids) == max(limit, 1) {
		p.Next = ids[len(ids)-1]
	}
	return p, nil
}
