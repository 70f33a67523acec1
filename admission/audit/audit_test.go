package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// chain returns n entries of a room, as the store would have written them after the anchor.
func chain(n int, anchor Head) []Entry {
	entries := make([]Entry, n)
	for i := range entries {
		e := &entries[i]
		*e = Entry{Seq: anchor.Seq + 1, Before: anchor.Hash, At: int64(1_800_000_000 + i), Who: "ann", Room: "sale", Action: "patch", Changes: []Change{{"rate", nil, new(fmt.Sprint(i))}}}
		e.Hash = e.Sum()
		anchor = Head{e.Seq, e.Hash}
	}
	return entries
}

// Every change, removal, addition and exchange of entries is found, except the removal of the newest, which Head shows.
func TestVerify_FindsWhatWasChanged(t *testing.T) {
	entries := chain(6, Head{})
	c, err := Verify(entries)
	if err != nil || c.Entries != 6 || c.Head != (Head{6, entries[5].Hash}) || c.Anchor != (Head{}) {
		t.Fatalf("an unchanged chain: %+v, %v", c, err)
	}
	changes := map[string]func(e *Entry){
		"seq": func(e *Entry) { e.Seq++ }, "before": func(e *Entry) { e.Before = strings.Repeat("0", 64) }, "hash": func(e *Entry) { e.Hash = strings.Repeat("0", 64) },
		"at": func(e *Entry) { e.At++ }, "who": func(e *Entry) { e.Who = "bob" }, "room": func(e *Entry) { e.Room = "vip" }, "action": func(e *Entry) { e.Action = "pause" },
		"field": func(e *Entry) { e.Changes = []Change{{"burst", nil, e.Changes[0].After}} }, "value": func(e *Entry) { e.Changes = []Change{{"rate", nil, new("9")}} },
		"nil value": func(e *Entry) { e.Changes = []Change{{"rate", new(""), e.Changes[0].After}} }, "no changes": func(e *Entry) { e.Changes = nil },
		"unchained":         func(e *Entry) { e.Seq, e.Before, e.Hash = 0, "", "" },
		"who, and its hash": func(e *Entry) { e.Who = "bob"; e.Hash = e.Sum() },
	}
	for i := range entries {
		for name, change := range changes {
			bad := slices.Clone(entries)
			change(&bad[i])
			// What the newest entry alone has is proved by a head that was noted elsewhere; an entry that is first may be the oldest kept.
			if i == len(bad)-1 && name == "who, and its hash" || i == 0 && name == "unchained" {
				if c, err := Verify(bad); err == nil && c.Head.Hash == entries[5].Hash && c.Entries == 6 {
					t.Errorf("%s of entry %d is not found", name, i)
				}
				continue
			}
			if _, err := Verify(bad); err == nil {
				t.Errorf("%s of entry %d is not found", name, i)
			}
		}
		if i > 0 && i < len(entries)-1 {
			if _, err := Verify(slices.Delete(slices.Clone(entries), i, i+1)); err == nil {
				t.Errorf("the removal of entry %d is not found", i)
			}
		}
		if i > 0 {
			bad := slices.Clone(entries)
			bad[i-1], bad[i] = bad[i], bad[i-1]
			if _, err := Verify(bad); err == nil {
				t.Errorf("the exchange of entries %d and %d is not found", i-1, i)
			}
		}
		if _, err := Verify(slices.Insert(slices.Clone(entries), i, entries[i])); err == nil {
			t.Errorf("a second entry %d is not found", i)
		}
	}
	if _, err := VerifyKept(entries[1:]); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("the removal of the oldest entry: %v", err)
	}
	if c, err := VerifyKept(chain(Kept, Head{7, strings.Repeat("a", 64)})); err != nil || c.Anchor.Seq != 7 {
		t.Errorf("a trimmed chain: %+v, %v", c, err)
	}
}

// An export that is read again has the same entries, whatever their texts.
func TestReadLines_ReturnsTheExportedEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		var want []Entry
		var lines bytes.Buffer
		for i := range rapid.IntRange(0, 5).Draw(t, "n") {
			e := Entry{Seq: int64(i + 1), At: rapid.Int64Range(0, 1<<33).Draw(t, "at"), Who: text.Draw(t, "who"), Room: "sale", Action: "patch"}
			e.Changes = append(e.Changes, Change{text.Draw(t, "field"), nil, new(text.Draw(t, "after"))})
			e.Hash = e.Sum()
			want = append(want, e)
			line, _ := json.Marshal(e.Line())
			lines.Write(append(line, '\n'))
		}
		_, all, err := ReadLines(&lines)
		got := all["sale"]
		if err != nil || len(got) != len(want) {
			t.Fatalf("read %v, %v, want %v", got, err, want)
		}
		for i := range want {
			if got[i].Sum() != want[i].Hash || got[i].Hash != want[i].Hash {
				t.Fatalf("read %+v, want %+v", got[i], want[i])
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "=", "10:17000000003:ann4:sale5:pause", "=" + strings.Repeat("0", 64) + "1:10:10:17000000003:ann4:sale5:pause4:rate-1:5", "-", "9:1", "1:x1:y1:z1:w"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		e, err := Parse(text)
		if err == nil && e.Seq < 0 {
			t.Errorf("seq %d", e.Seq)
		}
	})
}

func FuzzReadLines(f *testing.F) {
	f.Add(`{"room":"a","seq":1,"previous":"","hash":"","at":"2026-01-02T03:04:05Z","who":"x","action":"y","changes":[["a",null,"b"]]}`)
	f.Add("{}")
	f.Fuzz(func(_ *testing.T, text string) {
		_, entries, err := ReadLines(strings.NewReader(text))
		if err == nil {
			for _, list := range entries {
				_, _ = Verify(list)
			}
		}
	})
}
