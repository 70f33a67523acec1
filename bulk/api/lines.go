package api

import (
	"bytes"
	"errors"
	"io"
)

// lineReader cuts a stream into lines. It holds one line and what came with it, however long a line or the stream is.
type lineReader struct {
	r     io.Reader
	buf   []byte
	start int // of what was not given out yet
	end   int
	most  int   // bytes of a line, without its end
	line  int64 // number of the line given last, from 1
	err   error // of r, met already
}

// readAhead is how much more than a line is asked for at a time.
const readAhead = 64 << 10

func newLineReader(r io.Reader, most int) *lineReader {
	return &lineReader{r: r, buf: make([]byte, most+2+readAhead), most: most}
}

// next gives a line without its end (LF or CRLF) and without the byte order mark that the first may have; it is good until the
// next call. A line of more than most bytes is skipped and long. err is io.EOF after the last line, and any other error where
// the stream broke off: then what came of the last line is not given.
func (l *lineReader) next() (line []byte, long bool, err error) {
	searched := 0
	for {
		if i := bytes.IndexByte(l.buf[l.start+searched:l.end], '\n'); i >= 0 {
			line = l.buf[l.start : l.start+searched+i]
			l.start += searched + i + 1
			return l.give(line, long)
		}
		if l.err != nil {
			if !errors.Is(l.err, io.EOF) || l.start == l.end && !long {
				return nil, false, l.err
			}
			line = l.buf[l.start:l.end]
			l.start = l.end
			return l.give(line, long)
		}
		searched = l.end - l.start
		if long || searched > l.most+len(mark)+1 { // with a mark before it and a CR behind
			long, searched = true, 0
			l.start, l.end = 0, 0
		}
		l.fill()
	}
}

const mark = "\ufeff"

func (l *lineReader) give(line []byte, long bool) ([]byte, bool, error) {
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
	for range 100 { // a reader may give nothing, but not for ever
		n, err := l.r.Read(l.buf[l.end:])
		l.end += n
		if l.err = err; n > 0 || err != nil {
			return
		}
	}
	l.err = io.ErrNoProgress
}
