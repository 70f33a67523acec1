package client

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Compression is a content coding of HTTP.
type Compression string

// The compressions.
const (
	Zstd Compression = "zstd"
	Gzip Compression = "gzip"
)

func (c Compression) check() error {
	switch c {
	case "", Zstd, Gzip:
		return nil
	}
	return fmt.Errorf("the compression %q: use zstd or gzip", string(c))
}

var zstdEncoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(1<<20))
	if err != nil {
		panic(err) // the options are valid
	}
	return e
})

// compress returns a body in a coding.
func (c Compression) compress(body []byte) []byte {
	if c == Zstd {
		return zstdEncoder().EncodeAll(body, make([]byte, 0, len(body)/4))
	}
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body) // a Buffer accepts everything
	_ = w.Close()
	return b.Bytes()
}
