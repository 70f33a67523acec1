package store

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// Filter selects groups for Groups.
type Filter struct {
	Tenants []string // none: all
	Status  Status   // "": all
	Labels  []string // key=value; groups that have all of them
	Limit   int      // 1…1000
	Cursor  string   // of the page before

	split bool // groups may be split
}

// Groups lists groups, newest first, with a cursor for the next page ("" at the end). It reads at most a page of each
// of the filter's tenants, and of each status if the filter names none, however many groups there are.
func (s groupStore) Groups(ctx context.Context, f Filter) (groups []Group, next string, err error) {
	before, err := decodePlace(f.Cursor, f.Cursor)
	if err != nil {
		return nil, "", err
	}
	list, end, err := s.listed(ctx, f, before)
	if err != nil {
		return nil, "", err
	}
	groups = make([]Group, len(list))
	for i := range list {
		groups[i] = list[i].Group
	}
	if end != "" {
		next = encodePlace(end)
	}
	return groups, next, nil
}

func (f *Filter) limit() int { return min(max(f.Limit, 1), 1000) }

func encodePlace(place string) string { return base64.RawURLEncoding.EncodeToString([]byte(place)) }

// decodePlace returns the place that text encodes; cursor is the whole cursor, for the refusal.
func decodePlace(text, cursor string) (string, error) {
	place, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || text != "" && len(place) <= timeBytes {
		return "", refuse(CodeInvalid, "cursor %q: use next of the previous page", cursor)
	}
	return string(place), nil
}

// listedGroup is a group with its place in the lists.
type listedGroup struct {
	Group
	place string
}

// listed returns the newest groups after the place before ("": from the start), at most the filter's limit, and the place after which
// the list may go on ("": it does not).
func (s groupStore) listed(ctx context.Context, f Filter, before string) (groups []listedGroup, end string, err error) {
	if err := s.Prepare(ctx); err != nil {
		return nil, "", err
	}
	lists, limit := f.lists(), f.limit()
	for {
		var places []string
		last := ""
		if len(f.Labels) > 0 {
			places, last, err = labelSearch{s}.labelled(ctx, &f, before, limit-len(groups))
		} else if places, err = s.newest(ctx, lists, before, limit-len(groups)); len(places) > 0 {
			last = places[len(places)-1]
		}
		if err != nil {
			return nil, "", err
		}
		keys, of := make([]string, len(places)), make(map[string]string, len(places))
		for i, p := range places {
			keys[i] = p[timeBytes:]
			of[keys[i]] = p
		}
		read, err := s.read(ctx, "key", keys...)
		if err != nil {
			return nil, "", err
		}
		for _, g := range read { // skip groups whose status has changed since they were listed
			if !g.deleted && g.Part == 0 && f.matches(&g.Group) && !slices.ContainsFunc(groups, func(o listedGroup) bool { return o.ID == g.ID }) {
				groups = append(groups, listedGroup{g.Group, of[g.key]})
			}
		}
		if before = last; before == "" || len(groups) == limit || len(places) == 0 {
			return groups, last, nil
		}
	}
}

// underWay are the statuses between which a split group's own differs from that of its first part.
var underWay = []Status{Dispatched, Running, Aggregating}

// matches reports whether the filter has the group's status. A split group is under way as long as one of its parts is.
func (f *Filter) matches(g *Group) bool {
	return f.Status == "" || g.Status == f.Status || g.Split > 1 && slices.Contains(underWay, f.Status) && slices.Contains(underWay, g.Status)
}

// timeBytes is the length of the time in a place in a list, before the group's short name.
const timeBytes = 7

// lists returns the prefixes of the places of all groups that match the filter (place_in_lists of lua/lib/bulklife.lua).
func (f *Filter) lists() (all []string) {
	var numbers []string
	for n, status := range statuses {
		if n > 0 && (f.Status == "" || f.Status == status || f.split && slices.Contains(underWay, f.Status) && slices.Contains(underWay, status)) {
			numbers = append(numbers, strconv.Itoa(n))
		}
	}
	if len(f.Tenants) == 0 {
		for _, n := range numbers {
			all = append(all, "s"+n)
		}
	}
	tenants := slices.Clone(f.Tenants)
	slices.Sort(tenants)
	for _, tenant := range slices.Compact(tenants) {
		for _, n := range numbers {
			all = append(all, "t"+tenant+"\x00"+n)
		}
	}
	return all
}

// newest merges the lists: it returns the n newest places after the place before ("": from the start), without
// prefixes.
func (s groupStore) newest(ctx context.Context, lists []string, before string, n int) ([]string, error) {
	pipe, answers := s.o.Client.Pipeline(), make([]*redis.StringSliceCmd, len(lists))
	for i, list := range lists {
		from := "(" + list + before
		if before == "" {
			from = "(" + list + "\xff" // times begin with a smaller byte
		}
		answers[i] = pipe.ZRevRangeByLex(ctx, s.keys[keyLists], &redis.ZRangeBy{Max: from, Min: "[" + list, Count: int64(n)})
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	var places []string
	for i, list := range lists {
		for _, member := range answers[i].Val() {
			if tail := strings.TrimPrefix(member, list); len(tail) > timeBytes {
				places = append(places, tail)
			}
		}
	}
	slices.SortFunc(places, func(a, b string) int { return cmp.Compare(b, a) })
	return places[:min(n, len(places))], nil
}

// relist adds groups to the lists that an earlier version created without.
func (s groupStore) relist(ctx context.Context) error {
	pipe := s.o.Client.Pipeline()
	all, listed := pipe.ZCard(ctx, s.keys[keyIndex]), pipe.ZLexCount(ctx, s.keys[keyLists], "[s", "(u") // without labels
	if _, err := pipe.Exec(ctx); err != nil {
		return fmt.Errorf("%w: %w", ErrStore, err)
	}
	if listed.Val() >= 2*all.Val() {
		return nil
	}
	keys, err := s.groupKeys(ctx)
	if err != nil {
		return err
	}
	_, err = s.repair(ctx, "group", keys)
	return err
}
