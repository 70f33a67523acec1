package store

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// Bounds of the labels of a group.
const (
	MaxLabels     = 16
	MaxLabelValue = 255 // bytes
)

var labelKey = regexp.MustCompile(`^[a-z0-9._-]{1,63}$`)

// Labels are the labels of a group in one form for each set, so that specs can be compared: words key=value by key, with values as in a
// query, so that scripts find them in a spec without decoding it.
type Labels string

// labelWord returns a label as Labels has it.
func labelWord(key, value string) string { return key + "=" + url.QueryEscape(value) }

// LabelsOf returns labels from a map.
func LabelsOf(m map[string]string) Labels {
	words := make([]string, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		words = append(words, labelWord(key, m[key]))
	}
	return Labels(strings.Join(words, " "))
}

// words returns the labels, by key.
func (l Labels) words() []string { return strings.Fields(string(l)) }

// Map returns the labels by key, nil without any.
func (l Labels) Map() map[string]string {
	if l == "" {
		return nil
	}
	m := map[string]string{}
	for _, word := range l.words() {
		key, value, _ := strings.Cut(word, "=")
		m[key], _ = url.QueryUnescape(value) // checkLabels refuses what does not come back the same
	}
	return m
}

// CheckLabel returns what is wrong with a label, "" if nothing is.
func CheckLabel(key, value string) (wrong string) {
	switch {
	case !labelKey.MatchString(key):
		return fmt.Sprintf("has the key %q; use 1 to 63 of a-z 0-9 . _ -", key)
	case len(value) > MaxLabelValue:
		return fmt.Sprintf("has a value of %d bytes for %q; use at most %d", len(value), key, MaxLabelValue)
	case !utf8.ValidString(value) || strings.ContainsFunc(value, unicode.IsControl):
		return fmt.Sprintf("has a value with control characters for %q; leave them out", key)
	}
	return ""
}

func checkLabels(g *GroupSpec) error {
	all := g.Labels.Map()
	if len(all) > MaxLabels {
		return refuse(CodeInvalid, "labels: %d labels, at most %d are accepted", len(all), MaxLabels)
	}
	for key, value := range all {
		if wrong := CheckLabel(key, value); wrong != "" {
			return refuse(CodeInvalid, "labels %s", wrong)
		}
	}
	if LabelsOf(all) != g.Labels {
		return refuse(CodeInvalid, "labels: must be sorted by key, each key once; use LabelsOf")
	}
	return nil
}

// labelPlaces, for a label as key=value, returns the prefixes of the places of groups with a label, of tenants or, without any, of all groups (labels.places of
// lua/lib/bulklife.lua).
func labelPlaces(tenants []string, label string) (lists []string) {
	if len(tenants) == 0 {
		tenants = []string{""}
	}
	key, value, _ := strings.Cut(label, "=")
	for _, tenant := range slices.Compact(slices.Sorted(slices.Values(tenants))) {
		lists = append(lists, "l"+tenant+"\x00"+labelWord(key, value)+"\x00")
	}
	return lists
}

const (
	// labelChunk is how many groups with the rarest label one step of a search compares with the other criteria.
	labelChunk = 1000
	// mostCompared bounds the groups that a page of a search compares. The page can then have fewer groups than its limit and still a
	// next one.
	mostCompared = 20_000
)

// labelSearch finds groups by labels.
type labelSearch struct{ groupStore }

// labelled returns the newest places, at most n, of groups with all labels of the filter and its status. end is where the next page
// begins if the search has stopped before the end of the list, else "".
func (s labelSearch) labelled(ctx context.Context, f *Filter, before string, n int) (places []string, end string, err error) {
	rarest, err := s.rarest(ctx, f)
	if err != nil {
		return nil, "", err
	}
	lists := labelPlaces(f.Tenants, rarest)
	for compared := 0; ; {
		found, err := s.newest(ctx, lists, before, labelChunk)
		if err != nil {
			return nil, "", err
		}
		kept, err := s.withAll(ctx, f, rarest, found)
		if err != nil {
			return nil, "", err
		}
		places = append(places, kept...)
		if len(places) >= n {
			places = places[:n]
			return places, places[n-1], nil
		}
		if len(found) < labelChunk {
			return places, "", nil
		}
		before = found[len(found)-1]
		if compared += len(found); compared >= mostCompared {
			return places, before, nil
		}
	}
}

// rarest returns the label of the filter that the fewest groups have.
func (s labelSearch) rarest(ctx context.Context, f *Filter) (string, error) {
	if len(f.Labels) == 1 {
		return f.Labels[0], nil
	}
	pipe, counts := s.o.Client.Pipeline(), make([][]*redis.IntCmd, len(f.Labels))
	for i, label := range f.Labels {
		for _, list := range labelPlaces(f.Tenants, label) {
			counts[i] = append(counts[i], pipe.ZLexCount(ctx, s.keys[keyLists], "["+list, "("+list+"\xff"))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return "", fmt.Errorf("%w: %w", ErrStore, err)
	}
	best, least := f.Labels[0], int64(-1)
	for i, label := range f.Labels {
		n := int64(0)
		for _, c := range counts[i] {
			n += c.Val()
		}
		if least < 0 || n < least {
			best, least = label, n
		}
	}
	return best, nil
}

// withAll returns those of the places whose groups have all labels but one, which they have anyway, and the filter's status.
func (s labelSearch) withAll(ctx context.Context, f *Filter, has string, places []string) ([]string, error) {
	var every, statuses []string
	for _, label := range f.Labels {
		if label != has {
			every = append(every, labelPlaces(nil, label)...)
		}
	}
	if f.Status != "" {
		any := Filter{Status: f.Status, split: f.split}
		statuses = any.lists()
	}
	if len(places) == 0 || len(every)+len(statuses) == 0 {
		return places, nil
	}
	pipe, answers := s.o.Client.Pipeline(), []*redis.Cmd{}
	for _, list := range append(every, statuses...) {
		args := []any{"ZMSCORE", s.keys[keyLists]}
		for _, p := range places {
			args = append(args, list+p)
		}
		answers = append(answers, pipe.Do(ctx, args...))
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	there := func(answer, i int) bool {
		scores, _ := answers[answer].Val().([]any)
		return i < len(scores) && scores[i] != nil
	}
	var kept []string
	for i, p := range places {
		ok := len(statuses) == 0
		for k := range statuses {
			ok = ok || there(len(every)+k, i)
		}
		for k := range every {
			ok = ok && there(k, i)
		}
		if ok {
			kept = append(kept, p)
		}
	}
	return kept, nil
}
