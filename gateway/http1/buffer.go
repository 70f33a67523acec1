package http1

import (
	"errors"
	"io"
	"sync"
)

// BlockSize is the size of a pooled block: of one read from an origin, and so of the largest response header.
const BlockSize = 32 << 10

var blockPool = sync.Pool{New: func() any { b := make([]byte, BlockSize); return &b }}

// GetBlock returns a block of the pool.
func GetBlock() *[]byte { return blockPool.Get().(*[]byte) }

// PutBlock returns a block to the pool.
func PutBlock(b *[]byte) { blockPool.Put(b) }

// Buffer holds bytes that a peer has sent and nothing has consumed yet. It borrows a block from the pool while it holds
// something, so an idle connection has none.
type Buffer struct {
	Source io.Reader // its reads set their own deadlines

	block *[]byte
	b     []byte
	r, w  int
}

// ErrBufferFull is returned by Fill when a line or a header does not fit.
var ErrBufferFull = errors.New("http1: the line or header does not fit its buffer")

// Pending returns the bytes that are held.
func (in *Buffer) Pending() []byte { return in.b[in.r:in.w] }

// Buffered returns the number of bytes that are held.
func (in *Buffer) Buffered() int { return in.w - in.r }

// Skip consumes n bytes.
func (in *Buffer) Skip(n int) {
	if in.r += n; in.r == in.w {
		in.r, in.w = 0, 0
	}
}

// Keep consumes n bytes that stay valid until the next Skip or Fill.
func (in *Buffer) Keep(n int) { in.r += n }

func (in *Buffer) borrow() {
	if in.block == nil {
		in.block = GetBlock()
		in.b = *in.block
	}
}

// Release returns the block to the pool and drops what it holds.
func (in *Buffer) Release() {
	if in.block != nil {
		PutBlock(in.block)
		in.block, in.b = nil, nil
	}
	in.r, in.w = 0, 0
}

// Load adds p, growing beyond a block if it has to.
func (in *Buffer) Load(p []byte) {
	in.borrow()
	in.makeRoom(len(p))
	in.w += copy(in.b[in.w:], p)
}

// FillFrom reads once from r, growing beyond a block if it has to. With a limit it holds at most so many bytes after it.
func (in *Buffer) FillFrom(r io.Reader, limit int) (int, error) {
	in.borrow()
	in.makeRoom(1)
	end := len(in.b)
	if limit > 0 {
		end = min(end, in.r+limit)
	}
	n, err := r.Read(in.b[in.w:end])
	in.w += n
	return n, err
}

func (in *Buffer) makeRoom(n int) {
	if len(in.b)-in.w >= n {
		return
	}
	in.compact()
	if len(in.b)-in.w < n {
		grown := make([]byte, in.w+max(n, BlockSize))
		copy(grown, in.b[:in.w])
		in.b = grown
	}
}

func (in *Buffer) compact() {
	if in.r > 0 {
		copy(in.b, in.b[in.r:in.w])
		in.r, in.w = 0, in.w-in.r
	}
}

// Fill reads once from the source.
func (in *Buffer) Fill() error {
	in.borrow()
	if in.w == len(in.b) {
		if in.r == 0 {
			return ErrBufferFull
		}
		in.compact()
	}
	n, err := in.Source.Read(in.b[in.w:])
	in.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// Read returns what is held, or else reads from the source past the buffer.
func (in *Buffer) Read(p []byte) (int, error) {
	if in.r < in.w {
		n := copy(p, in.b[in.r:in.w])
		in.Skip(n)
		return n, nil
	}
	return in.Source.Read(p)
}
