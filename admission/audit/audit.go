// Package audit reads and verifies the entries of the audit log, which lua/lib/audit.lua writes. It is pure.
package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kept is the number of entries of a room that the store keeps.
const Kept = 5000

// Entry is an entry of the audit log.
type Entry struct {
	Seq     int64  // in the chain of its room, from 1; 0: from before there were chains
	Before  string // hash of the entry before
	Hash    string // of this entry
	At      int64  // seconds of Redis's clock
	Who     string // "" of a gateway
	Room    string
	Action  string // patch pause resume drain reset remove_ticket revoke, ask_… confirm_… withdraw_…, chain_lost
	Changes []Change
}

// Change is a field before and after, as the store keeps it (rate and burst in thousandths, durations in µs, booleans as 0 and 1);
// nil: by the configuration.
type Change struct {
	Field         string
	Before, After *string
}

// Parse reads an entry as the store keeps it.
func Parse(text string) (Entry, error) {
	fault := func() (Entry, error) { return Entry{}, fmt.Errorf("audit entry %q", text) }
	var e Entry
	body, chained := strings.CutPrefix(text, "=")
	if chained {
		if len(body) < 64 {
			return fault()
		}
		e.Hash, body = body[:64], body[64:]
	}
	words, ok := netstrings(body)
	if chained {
		if !ok || len(words) < 2 || words[0] == nil || words[1] == nil {
			return fault()
		}
		seq, err := strconv.ParseInt(*words[0], 10, 64)
		if err != nil || seq < 1 {
			return fault()
		}
		e.Seq, e.Before, words = seq, *words[1], words[2:]
	}
	if !ok || len(words) < 4 || (len(words)-4)%3 != 0 || slices.Contains(words[:4], nil) {
		return fault()
	}
	at, err := strconv.ParseInt(*words[0], 10, 64)
	if err != nil {
		return fault()
	}
	e.At, e.Who, e.Room, e.Action = at, *words[1], *words[2], *words[3]
	for w := words[4:]; len(w) > 0; w = w[3:] {
		if w[0] == nil {
			return fault()
		}
		e.Changes = append(e.Changes, Change{Field: *w[0], Before: w[1], After: w[2]})
	}
	return e, nil
}

func netstrings(text string) (words []*string, ok bool) {
	for rest := text; rest != ""; {
		if rest[0] == '-' {
			words = append(words, nil)
			rest = rest[1:]
			continue
		}
		size, tail, ok := strings.Cut(rest, ":")
		n, err := strconv.Atoi(size)
		if !ok || err != nil || n < 0 || n > len(tail) {
			return nil, false
		}
		words = append(words, new(tail[:n]))
		rest = tail[n:]
	}
	return words, true
}

// Sum returns the hash that the entry has to have: SHA-256 of its values in netstrings.
func (e *Entry) Sum() string {
	var b strings.Builder
	put := func(v string) { b.WriteString(strconv.Itoa(len(v)) + ":" + v) }
	for _, v := range []string{strconv.FormatInt(e.Seq, 10), e.Before, strconv.FormatInt(e.At, 10), e.Who, e.Room, e.Action} {
		put(v)
	}
	for _, c := range e.Changes {
		put(c.Field)
		for _, v := range []*string{c.Before, c.After} {
			if v == nil {
				b.WriteByte('-')
				continue
			}
			put(*v)
		}
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

// Head is the end of a chain, or what was trimmed before its first entry.
type Head struct {
	Seq  int64  `json:"seq"`
	Hash string `json:"hash"`
}

// Chain is a chain that was verified.
type Chain struct {
	Anchor    Head    // the last entry that is not there any more; Seq 0: none
	Head      Head    // the newest entry
	Entries   int     // of the chain
	Unchained int     // entries from before the chain, which nothing proves
	Lost      []int64 // seqs of entries that record a loss of earlier ones
}

// Verify verifies the entries of one room, oldest first. Its error names the first entry that is not as it was written. What Verify cannot find is the
// removal of the newest entries: compare Head with one that was noted elsewhere.
func Verify(entries []Entry) (Chain, error) {
	var c Chain
	for i := range entries {
		e := &entries[i]
		if e.Seq == 0 {
			if c.Entries > 0 {
				return c, fmt.Errorf("entry %d of %d, after seq %d: it has no hash, so it was not written by a gateway", i+1, len(entries), c.Head.Seq)
			}
			c.Unchained++
			continue
		}
		if c.Entries == 0 {
			c.Anchor = Head{e.Seq - 1, e.Before}
			c.Head = c.Anchor
		}
		switch {
		case e.Room != entries[0].Room:
			return c, fmt.Errorf("seq %d: it is of the room %q, not %q", e.Seq, e.Room, entries[0].Room)
		case e.Sum() != e.Hash:
			return c, fmt.Errorf("seq %d: it was changed; its hash is not that of its values", e.Seq)
		case e.Seq != c.Head.Seq+1:
			return c, fmt.Errorf("seq %d: it follows seq %d; entries were removed, added or moved", e.Seq, c.Head.Seq)
		case e.Before != c.Head.Hash:
			return c, fmt.Errorf("seq %d: the entry before is not the one that it was written after", e.Seq)
		}
		if e.Action == "chain_lost" {
			c.Lost = append(c.Lost, e.Seq)
		}
		c.Head, c.Entries = Head{e.Seq, e.Hash}, c.Entries+1
	}
	if c.Anchor.Seq == 0 && c.Anchor.Hash != "" {
		return c, fmt.Errorf("seq 1: it names an entry before it")
	}
	return c, nil
}

// VerifyKept is Verify for all entries that the store keeps: earlier ones may be absent only while it keeps Kept.
func VerifyKept(entries []Entry) (Chain, error) {
	c, err := Verify(entries)
	if err == nil && c.Anchor.Seq > 0 && c.Entries < Kept {
		err = fmt.Errorf("seq %d: %d earlier entries were removed although the store keeps %d", c.Anchor.Seq+1, c.Anchor.Seq, Kept)
	}
	return c, err
}
