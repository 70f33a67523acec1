package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// ErrAnswer says that what came back is not an HTTP/1.1 answer.
var ErrAnswer = errors.New("malformed answer")

// kept is how much of a body is remembered, and the longest header that is read.
const kept = 64 << 10

// Answer reads one answer as it arrives. Its slices hold until the next one is begun.
type Answer struct {
	Status     int
	Room, Pass []byte // X-Waiting-Room, X-Waiting-Room-Pass
	Close      bool   // the server ends the connection after it

	buf  []byte
	head int   // bytes of header, its blank line included; 0: it is not complete
	left int64 // of a body of known length, what is still to come; -1: until the connection ends

	chunked bool
	state   byte
	at, end int   // what of buf the chunks have been read up to, and where their data ends
	size    int64 // of the chunk that is being read
}

// The parts of a chunked body.
const (
	inSize = iota
	inData
	afterData
	inTrailer
)

// Body is what came of it, if that was not more than 64 KiB.
func (a *Answer) Body() []byte {
	if a.chunked {
		return a.buf[a.head:a.end]
	}
	return a.buf[a.head:]
}

// begin forgets the answer before.
func (a *Answer) begin() { *a = Answer{buf: a.buf[:0]} }

// space is where to read into.
func (a *Answer) space() []byte {
	if cap(a.buf)-len(a.buf) < 2<<10 {
		a.buf = append(make([]byte, 0, 2*cap(a.buf)+4<<10), a.buf...)
	}
	return a.buf[len(a.buf):cap(a.buf)]
}

// add takes the n bytes that were read into space, and tells whether the answer is complete.
func (a *Answer) add(n int) (done bool, err error) {
	from := len(a.buf)
	a.buf = a.buf[:from+n]
	for a.head == 0 {
		i := bytes.Index(a.buf[max(0, from-3):], []byte("\r\n\r\n"))
		if i < 0 {
			if len(a.buf) > kept {
				return false, fmt.Errorf("%w: its header is longer than %d bytes", ErrAnswer, kept)
			}
			return false, nil
		}
		a.head = max(0, from-3) + i + 4
		if err := a.header(); err != nil {
			return false, err
		}
		if a.Status < 200 && a.Status != 101 { // a word in between
			rest := copy(a.buf, a.buf[a.head:])
			*a = Answer{buf: a.buf[:rest]}
			from = 0
		} else {
			from = a.head
		}
	}
	switch {
	case a.chunked:
		return a.chunks()
	case a.left < 0:
		a.drop(a.head)
		return false, nil
	}
	if a.left -= int64(len(a.buf) - from); a.left < 0 {
		return false, fmt.Errorf("%w: %d bytes more than its length", ErrAnswer, -a.left)
	}
	a.drop(a.head)
	return a.left == 0, nil
}

// drop forgets a body that has become too long to keep.
func (a *Answer) drop(to int) {
	if len(a.buf) > 2*kept {
		a.buf = a.buf[:to]
	}
}

// ended tells whether the answer is complete now that the connection is at its end.
func (a *Answer) ended() bool { return a.head > 0 && !a.chunked && a.left < 0 }

func (a *Answer) header() error {
	line, rest, _ := bytes.Cut(a.buf[:a.head-2], []byte("\r\n"))
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' {
		return fmt.Errorf("%w: %.60q", ErrAnswer, line)
	}
	var err error
	if a.Status, err = strconv.Atoi(string(line[9:12])); err != nil || a.Status < 100 {
		return fmt.Errorf("%w: status %.60q", ErrAnswer, line)
	}
	a.Close = line[7] == '0'
	a.left = -1
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		i := bytes.IndexByte(line, ':')
		if i <= 0 {
			return fmt.Errorf("%w: header line %.60q", ErrAnswer, line)
		}
		value := bytes.TrimSpace(line[i+1:])
		switch name := line[:i]; {
		case is(name, "content-length"):
			n, err := strconv.ParseUint(string(value), 10, 62)
			if err != nil || a.left >= 0 {
				return fmt.Errorf("%w: length %.60q", ErrAnswer, value)
			}
			a.left = int64(n)
		case is(name, "transfer-encoding"):
			if !is(value, "chunked") {
				return fmt.Errorf("%w: Transfer-Encoding %.60q", ErrAnswer, value)
			}
			a.chunked = true
		case is(name, "connection"):
			a.Close = a.Close || is(value, "close")
		case is(name, "x-waiting-room"):
			a.Room = value
		case is(name, "x-waiting-room-pass"):
			a.Pass = value
		}
	}
	switch {
	case a.Status < 200 || a.Status == 204 || a.Status == 304:
		a.left, a.chunked = 0, false
	case a.chunked && a.left >= 0:
		return fmt.Errorf("%w: both chunked and with a length", ErrAnswer)
	case a.chunked:
		a.at, a.end = a.head, a.head
	case a.left < 0:
		a.Close = true
	}
	return nil
}

// is compares with a name in lower case.
func is(s []byte, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range s {
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

// chunks takes the body's framing out of buf, in place.
func (a *Answer) chunks() (done bool, err error) {
	for {
		rest := a.buf[a.at:]
		switch a.state {
		case inData:
			n := min(int64(len(rest)), a.size)
			a.end += copy(a.buf[a.end:], rest[:n])
			a.at += int(n)
			if a.size -= n; a.size > 0 {
				if a.end > a.head+kept {
					a.end = a.head
				}
				a.buf = a.buf[:a.end] // all of it was this chunk's
				a.at = a.end
				return false, nil
			}
			a.state = afterData
			continue
		case afterData:
			if len(rest) < 2 {
				return false, nil
			}
			if rest[0] != '\r' || rest[1] != '\n' {
				return false, fmt.Errorf("%w: a chunk is longer than its size", ErrAnswer)
			}
			a.at += 2
			a.state = inSize
			continue
		}
		i := bytes.Index(rest, []byte("\r\n"))
		if i < 0 {
			if len(rest) > kept {
				return false, fmt.Errorf("%w: no end of a chunk's size", ErrAnswer)
			}
			return false, nil
		}
		line := rest[:i]
		a.at += i + 2
		if a.state == inTrailer {
			if len(line) > 0 {
				continue
			}
			if a.at < len(a.buf) {
				return false, fmt.Errorf("%w: %d bytes after its last chunk", ErrAnswer, len(a.buf)-a.at)
			}
			return true, nil
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseUint(string(bytes.TrimSpace(size)), 16, 62)
		if err != nil {
			return false, fmt.Errorf("%w: chunk size %.60q", ErrAnswer, line)
		}
		a.size, a.state = int64(n), inData
		if n == 0 {
			a.state = inTrailer
		}
	}
}
