package store

import (
	"cmp"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/anteroom/anteroom/bulk/calendar"
)

// MaxAfter is the most predecessors of a group.
const MaxAfter = 20

func checkAfter(g *GroupSpec) error {
	ids := strings.Fields(g.After)
	switch {
	case len(ids) > MaxAfter:
		return refuse(CodeInvalid, "after: %d groups, at most %d are accepted", len(ids), MaxAfter)
	case whens[g.When] == 0 && g.When != "":
		return refuse(CodeInvalid, "when %q: use on_success, on_failure or on_end", g.When)
	case g.When != "" && len(ids) == 0:
		return refuse(CodeInvalid, "when: needs after, the groups that have to end first")
	}
	slices.Sort(ids)
	for i, id := range ids {
		if !groupID.MatchString(id) || id == g.ID {
			return refuse(CodeInvalid, "after %q: use the ids of other groups", id)
		}
		if i > 0 && ids[i-1] == id {
			return refuse(CodeInvalid, "after %q: is listed twice", id)
		}
	}
	return nil
}

// quietWords returns quiet hours as scripts read them, "" if there are none.
func quietWords(q calendar.Quiet, now time.Time) string {
	if q == (calendar.Quiet{}) {
		return ""
	}
	return q.Words(now)
}

// today returns the time of this process, which stands for the store's where only the changes of time zones' clocks matter.
func (s *shard) today() time.Time {
	if s.o.Now != nil {
		return micros(s.o.Now())
	}
	return time.Now()
}

// whens numbers the values of GroupSpec.When for scripts.
var whens = map[When]int{OnSuccess: 1, OnFailure: 2, OnEnd: 3}

// whenNumber returns the number of a group's condition for scripts, 0 if it has no predecessors.
func whenNumber(g *GroupSpec) int {
	if g.After == "" {
		return 0
	}
	return whens[cmp.Or(g.When, OnSuccess)]
}

// Bounds of Unique.Within.
const (
	MinUnique = time.Second
	MaxUnique = 720 * time.Hour
)

// check returns an error for an invalid key or time; the zero value is valid.
func (u Unique) check() error {
	switch {
	case u == Unique{}:
		return nil
	case u.Key == "" || len(u.Key) > 200 || !utf8.ValidString(u.Key) || strings.ContainsFunc(u.Key, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return refuse(CodeInvalid, "unique.key %q: use 1 to 200 bytes of printable characters", u.Key)
	case u.Within < MinUnique || u.Within > MaxUnique:
		return refuse(CodeInvalid, "unique.for %s: use %s to %s", u.Within, MinUnique, MaxUnique)
	}
	return nil
}

// storedTime returns a time as the store keeps it.
func storedTime(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return micros(t.UnixMicro())
}

// sinceEpoch returns a time in microseconds for scripts: 0 for the zero time, 1 for any other time before 1970.
func sinceEpoch(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return max(1, t.UnixMicro())
}
