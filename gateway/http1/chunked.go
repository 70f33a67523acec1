package http1

import (
	"bytes"
	"errors"
	"io"
)

// ErrChunk is wrapped by every error about the framing of a chunked body.
var ErrChunk = errors.New("http1: malformed chunked body")

func chunkError(what string) error { return &chunkFault{what} }

type chunkFault struct{ what string }

func (e *chunkFault) Error() string   { return ErrChunk.Error() + ": " + e.what }
func (e *chunkFault) Unwrap() error   { return ErrChunk }
func (e *chunkFault) Is(t error) bool { return t == ErrChunk }

const (
	maxChunkLine   = 512     // size and extensions of one chunk
	maxTrailers    = 8 << 10 // the trailer section
	maxChunkWaste  = 4 << 10 // extensions may exceed the data by this much
	maxChunkDigits = 15      // 60 bits of length
)

type chunkState uint8

const (
	chunkSize chunkState = iota
	chunkData
	chunkDataEnd
	chunkTrailer
	chunkDone
)

// ChunkReader decodes a chunked body (RFC 9112 §7.1) strictly: hexadecimal digits only, CRLF only, extensions of
// visible characters. What one parser tolerates another may read as a request.
type ChunkReader struct {
	state    chunkState
	lenient  bool // blanks after a size are allowed: some origins pad it
	lines    int  // the trailer section may still have
	left     uint64
	waste    int
	Trailers []byte // the lines of the trailer section, without the empty one
}

// Reset prepares c for a body whose trailer section has at most lines lines.
func (c *ChunkReader) Reset(lenient bool, lines int) {
	c.state, c.lenient, c.lines, c.left, c.waste, c.Trailers = chunkSize, lenient, lines, 0, 0, c.Trailers[:0]
}

// Read decodes into p. It blocks only if in has nothing to decode, and returns io.EOF after the body and its
// trailers.
func (c *ChunkReader) Read(in *Buffer, p []byte) (int, error) {
	n := 0
	for n < len(p) {
		if c.state == chunkDone {
			break
		}
		if c.state == chunkData {
			q := p[n:]
			if uint64(len(q)) > c.left {
				q = q[:c.left]
			}
			if in.Buffered() == 0 && n > 0 {
				break // return what there is before waiting for more
			}
			m, err := in.Read(q)
			n += m
			c.left -= uint64(m)
			if c.left == 0 {
				c.state = chunkDataEnd
			}
			if err != nil && m == 0 {
				return n, NoEOF(err)
			}
			continue
		}
		done, err := c.step(in)
		if err != nil {
			return n, err
		}
		if !done {
			if n > 0 {
				break
			}
			if err := in.Fill(); err != nil {
				if err == ErrBufferFull {
					err = chunkError("a line is too long")
				}
				return 0, NoEOF(err)
			}
		}
	}
	if n == 0 && c.state == chunkDone && len(p) > 0 {
		return 0, io.EOF
	}
	return n, nil
}

// Done reports whether the body and its trailers have been read to their end.
func (c *ChunkReader) Done() bool { return c.state == chunkDone }

// Ready reports whether Read would return without waiting. It decodes no further than to the next data.
func (c *ChunkReader) Ready(in *Buffer) bool {
	for c.state != chunkData && c.state != chunkDone {
		done, err := c.step(in)
		if err != nil {
			return true // Read returns the error again
		}
		if !done {
			return false
		}
	}
	return c.state == chunkDone || in.Buffered() > 0
}

// Malformed reports whether b, the beginning of a body, is malformed. lines is that of Reset.
func (c *ChunkReader) Malformed(b []byte, lines int) bool {
	ahead := Buffer{b: b, w: len(b)}
	c.Reset(false, lines)
	for c.state != chunkDone {
		if c.state == chunkData {
			n := min(c.left, uint64(ahead.Buffered()))
			ahead.Skip(int(n))
			if c.left -= n; c.left > 0 {
				return false
			}
			c.state = chunkDataEnd
			continue
		}
		if whole, err := c.step(&ahead); err != nil || !whole {
			return err != nil
		}
	}
	return false
}

// step consumes one line of framing. It returns false if in does not hold the whole line.
func (c *ChunkReader) step(in *Buffer) (bool, error) {
	b := in.Pending()
	switch c.state {
	case chunkSize:
		nl := bytes.IndexByte(b, '\n')
		if nl < 0 {
			if len(b) > maxChunkLine {
				return false, chunkError("a size line is too long")
			}
			return false, chunkPrefix(b)
		}
		if nl > maxChunkLine {
			return false, chunkError("a size line is too long")
		}
		size, err := c.parseSize(b[:nl])
		if err != nil {
			return false, err
		}
		in.Skip(nl + 1)
		if c.left = size; size == 0 {
			c.state = chunkTrailer
			return true, nil
		}
		if c.waste += nl - 8 - int(min(size, 1024)); c.waste < 0 {
			c.waste = 0
		} else if c.waste > maxChunkWaste {
			return false, chunkError("more extension than data")
		}
		c.state = chunkData
	case chunkDataEnd:
		if len(b) > 0 && b[0] != '\r' || len(b) > 1 && b[1] != '\n' {
			return false, chunkError("no CRLF follows the data of a chunk")
		}
		if len(b) < 2 {
			return false, nil
		}
		in.Skip(2)
		c.state = chunkSize
	case chunkTrailer:
		nl := bytes.IndexByte(b, '\n')
		if nl < 0 {
			if len(b) > maxTrailers {
				return false, chunkError("the trailer section is too large")
			}
			return false, nil
		}
		if nl == 0 || b[nl-1] != '\r' {
			return false, chunkError("a trailer line ends with LF alone")
		}
		if nl == 1 {
			in.Skip(2)
			c.state = chunkDone
			return true, nil
		}
		if len(c.Trailers)+nl+1 > maxTrailers {
			return false, chunkError("the trailer section is too large")
		}
		if c.lines--; c.lines < 0 {
			return false, chunkError("the trailer section has too many lines")
		}
		if !validFieldLine(b[:nl-1]) {
			return false, chunkError("a trailer is not a header line")
		}
		c.Trailers = append(c.Trailers, b[:nl+1]...)
		in.Skip(nl + 1)
	}
	return true, nil
}

// chunkPrefix rejects the beginning of a line that cannot become a size, so that nothing waits for its end.
func chunkPrefix(b []byte) error {
	if len(b) > 0 && !isHex(b[0]) {
		return chunkError("a size is not hexadecimal")
	}
	return nil
}

// parseSize parses `1*HEXDIG [";" extension] CR`; b ends before LF.
func (c *ChunkReader) parseSize(b []byte) (uint64, error) {
	if len(b) < 2 || b[len(b)-1] != '\r' {
		return 0, chunkError("a size line does not end with CRLF")
	}
	b = b[:len(b)-1]
	var size uint64
	i := 0
	for ; i < len(b) && isHex(b[i]); i++ {
		d := uint64(lowerTable[b[i]])
		if d >= 'a' {
			d -= 'a' - 10
		} else {
			d -= '0'
		}
		size = size<<4 | d
	}
	if i == 0 {
		return 0, chunkError("a size is not hexadecimal")
	}
	if i > maxChunkDigits {
		return 0, chunkError("a size has too many digits")
	}
	rest := b[i:]
	if c.lenient {
		rest = TrimOWS(rest)
	}
	if len(rest) == 0 {
		return size, nil
	}
	if rest[0] != ';' || len(rest) < 2 || !tokenTable[rest[1]] {
		return 0, chunkError("a size is followed by something other than an extension")
	}
	for _, x := range rest {
		if x < 0x20 && x != '\t' || x >= 0x7f {
			return 0, chunkError("an extension holds a control character")
		}
	}
	return size, nil
}

// validFieldLine reports whether b is `token ":" value`, without its CRLF.
func validFieldLine(b []byte) bool {
	colon := bytes.IndexByte(b, ':')
	return colon > 0 && IsToken(b[:colon]) && ValidValue(b[colon+1:])
}

// NoEOF returns io.ErrUnexpectedEOF for io.EOF, and other errors as they are: the connection ended inside a body.
func NoEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
