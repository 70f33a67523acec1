package client

import (
	"bytes"
	"io"
)

// maxEvent bounds one event of a stream.
const maxEvent = 1 << 20

// events reads the fields event and data of server-sent events (WHATWG HTML, section 9.2).
type events struct {
	lines *lineReader
	line  []byte
	data  []byte
}

func newEvents(r io.Reader) *events { return &events{lines: newLineReader(r, maxEvent)} }

// next returns the next event that has data. name is "message" if the stream has none; data is valid until the next
// call. An event that the end of the stream truncates is dropped.
func (e *events) next() (name string, data []byte, err error) {
	name, e.data = "message", e.data[:0]
	for some := false; ; {
		if e.line, _, err = e.lines.append(e.line[:0]); err != nil {
			return "", nil, err
		}
		line := bytes.TrimRight(e.line, "\r\n")
		if len(line) == 0 {
			if some {
				return name, bytes.TrimSuffix(e.data, []byte("\n")), nil
			}
			name = "message"
			continue
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			name = string(value)
		case "data":
			some = true
			if e.data = append(append(e.data, value...), '\n'); len(e.data) > maxEvent {
				return "", nil, errLongLine
			}
		}
	}
}
