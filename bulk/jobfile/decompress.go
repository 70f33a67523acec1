package jobfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxWindow bounds the memory of zstd: it is the window of zstd --long.
const maxWindow = 128 << 20

// Format is the form of a file of jobs.
type Format string

// The formats. TSV is CSV with tabs.
const (
	NDJSON Format = "ndjson"
	CSV    Format = "csv"
	TSV    Format = "tsv"
)

var (
	gzipEndings = []string{".gz", ".gzip"}
	zstdEndings = []string{".zst", ".zstd"}
)

// FormatOf returns the format of a file by the ending of its name, before that of a compression; NDJSON for any other ending.
func FormatOf(name string) Format {
	name = strings.ToLower(name)
	if ending := filepath.Ext(name); slices.Contains(gzipEndings, ending) || slices.Contains(zstdEndings, ending) {
		name = strings.TrimSuffix(name, ending)
	}
	switch filepath.Ext(name) {
	case ".csv":
		return CSV
	case ".tsv", ".tab":
		return TSV
	}
	return NDJSON
}

// Decompress returns the content of a file, decompressed if its first bytes are those of gzip or zstd; compressed reports
// whether they are. It returns an error for an uncompressed file whose name has the ending of a compression. The caller
// closes the content.
func Decompress(r io.Reader, name string) (content io.ReadCloser, compressed bool, err error) {
	b := bufio.NewReaderSize(r, 64<<10)
	begin, err := b.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, false, err
	}
	ending := strings.ToLower(filepath.Ext(name))
	switch {
	case bytes.HasPrefix(begin, []byte{0x1f, 0x8b}):
		z, err := gzip.NewReader(b)
		return z, true, err
	case bytes.HasPrefix(begin, []byte{0x28, 0xb5, 0x2f, 0xfd}), len(begin) == 4 && begin[0]&0xf0 == 0x50 && bytes.Equal(begin[1:], []byte{0x2a, 0x4d, 0x18}): // or a skippable frame
		z, err := zstd.NewReader(b, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, true, err
		}
		return z.IOReadCloser(), true, nil
	case len(begin) > 0 && (slices.Contains(gzipEndings, ending) || slices.Contains(zstdEndings, ending)):
		return nil, false, fmt.Errorf("%s is not compressed with gzip or zstd: correct its name", name)
	}
	return io.NopCloser(b), false, nil
}
