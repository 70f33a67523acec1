package api

import (
	"bytes"
	"errors"
	"io"
)

// lineReader splits a stream into lines. Its memory is bounded, whatever the length of a line or the stream.
type lineReader struct {
	r     io.Reader
	buf   []byte
	start int // of the bytes not returned yet
	end   int
	most  int   // bytes of a line, without line end
	line  int64 // number of the last line, from 1
	err   error // of r
}

// readAhead is how many bytes more than a line are read at a time.
const readAhead = 64 << 10

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{r: r, buf: make([]byte, most+2+readAhead), most: most}
}

// next returns the next line without its end (LF or CRLF), and the first without a byte order mark. The line is valid
// until the next call. A line of more than most bytes is skipped and long is true. err is io.EOF after the last line,
// and another error where the stream broke off, within a line or after it.
func (l *lineReader) next() (line []byte, long bool, err error) {
	searched := 0
	for {
		if i := bytes.IndexByte(l.buf[l.start+searched:l.end], '\n'); i >= 0 {
			line = l.buf[l.start : l.start+searched+i]
			l.start += searched + i + 1
			return l.trim(line, long)
		}
		if l.err != nil {
			if !errors.Is(l.err, io.EOF) || l.start == l.end && !long {
				return nil, false, l.err
			}
			line = l.buf[l.start:l.end]
			l.start = l.end
			return l.trim(line, long)
		}
		searched = l.end - l.start
		if long || searched > l.most+len(mark)+1 { // with a byte order mark and a CR
			long, searched = true, 0
			l.start, l.end = 0, 0
		}
		l.fill()
	}
}

const mark = "\ufeff"

func (l *lineReader) trim(line []byte, long bool) ([]byte, bool, error) {
	l.line++
	if l.line == 1 {
		line = bytes.TrimPrefix(line, []byte(mark))
	}
	line = bytes.TrimSuffix(line, []byte{'\r'})
	if long || len(line) > l.most {
		return nil, true, nil
	}
	return line, false, nil
}

func (l *lineReader) fill() {
	if l.start > 0 && len(l.buf)-l.end < readAhead/2 {
		l.end = copy(l.buf, l.buf[l.start:l.end])
		l.start = 0
	}
	for range 100 { // a reader may return nothing, but not forever
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		if l.err = err; n > 0 || err != nil {
			return
		}
	}
	l.err = io.ErrNoProgress
}
