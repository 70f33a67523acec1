package http1

import (
	"errors"
	"io"
	"sync"
)

// blockSize is the size of a pooled block: one read from an origin, and so the largest response header.
const BlockSize = 32 << 10

var blockPool = sync.Pool{New: func() any { b := make([]byte, BlockSize); return &b }}

func GetBlock() *[]byte  { return blockPool.Get().(*[]byte) }
func PutBlock(b *[]byte) { blockPool.Put(b) }

// inbuf holds bytes that a peer has sent and nobody has consumed. It borrows its block from a pool
// when there is something to hold and gives it back when empty, so an idle connection costs none.
type Buffer struct {
	Src   io.Reader
	block *[]byte
	B     []byte
	R, W  int
}

var ErrBufferFull = errors.New("proxy: the peer's line or header does not fit its buffer")

func (in *Buffer) Pending() []byte { return in.B[in.R:in.W] }
func (in *Buffer) Buffered() int   { return in.W - in.R }

func (in *Buffer) Skip(n int) {
	if in.R += n; in.R == in.W {
		in.R, in.W = 0, 0
	}
}

func (in *Buffer) Borrow() {
	if in.block == nil {
		in.block = GetBlock()
		in.B = *in.block
	}
}

// release gives the block back. What it still holds is lost.
func (in *Buffer) Release() {
	if in.block != nil {
		PutBlock(in.block)
		in.block, in.B = nil, nil
	}
	in.R, in.W = 0, 0
}

// load puts p behind what is held, growing beyond a block where it must.
func (in *Buffer) Load(p []byte) {
	in.Borrow()
	in.MakeRoom(len(p))
	in.W += copy(in.B[in.W:], p)
}

func (in *Buffer) MakeRoom(n int) {
	if len(in.B)-in.W >= n {
		return
	}
	if in.R > 0 {
		copy(in.B, in.B[in.R:in.W])
		in.R, in.W = 0, in.W-in.R
	}
	if len(in.B)-in.W < n {
		grown := make([]byte, in.W+max(n, BlockSize))
		copy(grown, in.B[:in.W])
		in.B = grown
	}
}

// fill reads once more behind what is held.
func (in *Buffer) Fill() error {
	in.Borrow()
	if in.W == len(in.B) {
		if in.R == 0 {
			return ErrBufferFull
		}
		copy(in.B, in.B[in.R:in.W])
		in.R, in.W = 0, in.W-in.R
	}
	n, err := in.Src.Read(in.B[in.W:])
	in.W += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// read takes from what is held, else straight from the source.
func (in *Buffer) Read(p []byte) (int, error) {
	if in.R < in.W {
		n := copy(p, in.B[in.R:in.W])
		in.Skip(n)
		return n, nil
	}
	return in.Src.Read(p)
}
