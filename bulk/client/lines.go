package client

import (
	"bufio"
	"errors"
	"io"
)

// errLongLine is returned for a line above the limit. An empty line replaces it.
var errLongLine = errors.New("the line is too long")

// lineReader reads lines in constant memory.
type lineReader struct {
	r   *bufio.Reader
	max int
}

func newLineReader(r io.Reader, longest int) *lineReader {
	return &lineReader{r: bufio.NewReaderSize(r, 64<<10), max: longest}
}

// append appends the next line to b, always with a line end, and returns its length in the source. It returns io.EOF
// at the end. With errLongLine, the line still counts.
func (l *lineReader) append(b []byte) ([]byte, int64, error) {
	start, n := len(b), int64(0)
	for {
		part, err := l.r.ReadSlice('\n')
		n += int64(len(part))
		if n <= int64(l.max) {
			b = append(b, part...)
		}
		ended := errors.Is(err, io.EOF)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case ended && n == 0:
			return b, 0, io.EOF
		case err != nil && !ended:
			return b[:start], 0, err
		case n > int64(l.max):
			return append(b[:start], '\n'), n, errLongLine
		case ended:
			b = append(b, '\n') // the last line of a file without a line end
		}
		return b, n, nil
	}
}
