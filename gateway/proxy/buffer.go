package proxy

import (
	"errors"
	"io"
	"sync"
)

// blockSize is the size of a pooled block: one read from an origin, and so the largest response header.
const blockSize = 32 << 10

var blockPool = sync.Pool{New: func() any { b := make([]byte, blockSize); return &b }}

func getBlock() *[]byte  { return blockPool.Get().(*[]byte) }
func putBlock(b *[]byte) { blockPool.Put(b) }

// inbuf holds bytes that a peer has sent and nobody has consumed. It borrows its block from a pool
// when there is something to hold and gives it back when empty, so an idle connection costs none.
type inbuf struct {
	src   io.Reader
	block *[]byte
	b     []byte
	r, w  int
}

var errBufferFull = errors.New("proxy: the peer's line or header does not fit its buffer")

func (in *inbuf) pending() []byte { return in.b[in.r:in.w] }
func (in *inbuf) buffered() int   { return in.w - in.r }

func (in *inbuf) skip(n int) {
	if in.r += n; in.r == in.w {
		in.r, in.w = 0, 0
	}
}

func (in *inbuf) borrow() {
	if in.block == nil {
		in.block = getBlock()
		in.b = *in.block
	}
}

// release gives the block back. What it still holds is lost.
func (in *inbuf) release() {
	if in.block != nil {
		putBlock(in.block)
		in.block, in.b = nil, nil
	}
	in.r, in.w = 0, 0
}

// load puts p behind what is held, growing beyond a block where it must.
func (in *inbuf) load(p []byte) {
	in.borrow()
	in.makeRoom(len(p))
	in.w += copy(in.b[in.w:], p)
}

func (in *inbuf) makeRoom(n int) {
	if len(in.b)-in.w >= n {
		return
	}
	if in.r > 0 {
		copy(in.b, in.b[in.r:in.w])
		in.r, in.w = 0, in.w-in.r
	}
	if len(in.b)-in.w < n {
		grown := make([]byte, in.w+max(n, blockSize))
		copy(grown, in.b[:in.w])
		in.b = grown
	}
}

// fill reads once more behind what is held.
func (in *inbuf) fill() error {
	in.borrow()
	if in.w == len(in.b) {
		if in.r == 0 {
			return errBufferFull
		}
		copy(in.b, in.b[in.r:in.w])
		in.r, in.w = 0, in.w-in.r
	}
	n, err := in.src.Read(in.b[in.w:])
	in.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// read takes from what is held, else straight from the source.
func (in *inbuf) read(p []byte) (int, error) {
	if in.r < in.w {
		n := copy(p, in.b[in.r:in.w])
		in.skip(n)
		return n, nil
	}
	return in.src.Read(p)
}
