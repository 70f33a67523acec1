package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Line is an entry as a line of an export.
type Line struct {
	Room    string       `json:"room"`
	Seq     int64        `json:"seq"`
	Before  string       `json:"previous"`
	Hash    string       `json:"hash"`
	At      time.Time    `json:"at"`
	Who     string       `json:"who"`
	Action  string       `json:"action"`
	Changes [][3]*string `json:"changes"` // field, before, after
}

// Line returns the entry as a line of an export.
func (e *Entry) Line() Line {
	l := Line{e.Room, e.Seq, e.Before, e.Hash, time.Unix(e.At, 0).UTC(), e.Who, e.Action, [][3]*string{}}
	for _, c := range e.Changes {
		l.Changes = append(l.Changes, [3]*string{&c.Field, c.Before, c.After})
	}
	return l
}

// ReadLines reads an export: for each room its entries, oldest first. An error names the line.
func ReadLines(r io.Reader) (rooms []string, entries map[string][]Entry, err error) {
	entries = map[string][]Entry{}
	d := json.NewDecoder(r)
	d.DisallowUnknownFields()
	for n := 1; ; n++ {
		var raw json.RawMessage
		if err := d.Decode(&raw); err == io.EOF {
			return rooms, entries, nil
		} else if err != nil {
			return nil, nil, fmt.Errorf("entry %d is not JSON: %w", n, err)
		}
		var l Line
		strict := json.NewDecoder(bytes.NewReader(raw))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&l); err != nil {
			return nil, nil, fmt.Errorf("entry %d is not of an audit log: %w", n, err)
		}
		e := Entry{Seq: l.Seq, Before: l.Before, Hash: l.Hash, At: l.At.Unix(), Who: l.Who, Room: l.Room, Action: l.Action}
		for _, c := range l.Changes {
			if c[0] == nil {
				return nil, nil, fmt.Errorf("entry %d has a change without a field", n)
			}
			e.Changes = append(e.Changes, Change{*c[0], c[1], c[2]})
		}
		if entries[l.Room] == nil {
			rooms = append(rooms, l.Room)
		}
		entries[l.Room] = append(entries[l.Room], e)
	}
}
