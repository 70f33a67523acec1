package main

import (
	"bufio"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/anteroom/anteroom/bench/visitor"
)

// shelf keeps many tokens in little memory: the headers that they share once, what is left of each decoded, in a slot of
// its own. A token of 380 characters takes 240 bytes, and nothing that a garbage collector would look at.
type shelf struct {
	heads  []string // "header."
	slot   int      // bytes; of the first token's size
	slots  int
	blocks [][]byte
	odd    map[int]string // those that do not fit a slot
}

const (
	perBlock = 1 << 12
	// renewal is by how much a token may grow when the store confirms it: seen and ep.
	renewal = 64
	// before a slot's payload: the header's number plus one (0: nothing is kept here), the lengths of both parts.
	preface = 4
)

var jwtText = base64.RawURLEncoding.Strict()

func newShelf(slots int) *shelf { return &shelf{slots: slots, odd: map[int]string{}} }

// put keeps a token in the place of the one before.
func (s *shelf) put(i int, token string) {
	if !s.pack(i, token) {
		s.clear(i)
		s.odd[i] = token
		return
	}
	if len(s.odd) > 0 {
		delete(s.odd, i)
	}
}

func (s *shelf) clear(i int) {
	if s.blocks != nil && s.blocks[i/perBlock] != nil {
		s.at(i)[0] = 0
	}
}

func (s *shelf) at(i int) []byte {
	at := i % perBlock * s.slot
	return s.blocks[i/perBlock][at : at+s.slot]
}

func (s *shelf) pack(i int, token string) bool {
	head, rest, _ := strings.Cut(token, ".")
	payload, signature, ok := strings.Cut(rest, ".")
	if !ok {
		return false
	}
	n, m := jwtText.DecodedLen(len(payload)), jwtText.DecodedLen(len(signature))
	if s.slot == 0 {
		s.slot = (preface + n + m + renewal + 7) &^ 7
		s.blocks = make([][]byte, (s.slots+perBlock-1)/perBlock)
	}
	if preface+n+m > s.slot || m > 255 {
		return false
	}
	h := slices.IndexFunc(s.heads, func(known string) bool { return known[:len(known)-1] == head })
	if h < 0 {
		if h = len(s.heads); h == 255 {
			return false
		}
		s.heads = append(s.heads, strings.Clone(head)+".")
	}
	if s.blocks[i/perBlock] == nil {
		s.blocks[i/perBlock] = make([]byte, perBlock*s.slot)
	}
	b := s.at(i)
	b[0] = 0
	if _, err := jwtText.Decode(b[preface:preface+n], []byte(payload)); err != nil {
		return false
	}
	if _, err := jwtText.Decode(b[preface+n:preface+n+m], []byte(signature)); err != nil {
		return false
	}
	binary.LittleEndian.PutUint16(b[1:], uint16(n))
	b[0], b[3] = byte(h+1), byte(m)
	return true
}

// add appends the token of a slot; nothing where none is kept.
func (s *shelf) add(dst []byte, i int) []byte {
	payload, signature, head := s.parts(i)
	if head == "" {
		return append(dst, s.odd[i]...)
	}
	dst = jwtText.AppendEncode(append(dst, head...), payload)
	return jwtText.AppendEncode(append(dst, '.'), signature)
}

func (s *shelf) parts(i int) (payload, signature []byte, head string) {
	if s.blocks == nil || s.blocks[i/perBlock] == nil {
		return nil, nil, ""
	}
	b := s.at(i)
	if b[0] == 0 {
		return nil, nil, ""
	}
	n, m := int(binary.LittleEndian.Uint16(b[1:])), int(b[3])
	return b[preface : preface+n], b[preface+n : preface+n+m], s.heads[b[0]-1]
}

// place reads of a kept token whose place it is and where; nothing where none is kept.
func (s *shelf) place(i int) (p visitor.Place) {
	if payload, _, head := s.parts(i); head != "" {
		return visitor.GlancePlace(payload)
	}
	if _, rest, ok := strings.Cut(s.odd[i], "."); ok {
		payload, _, _ := strings.Cut(rest, ".")
		if raw, err := jwtText.DecodeString(payload); err == nil {
			return visitor.GlancePlace(raw)
		}
	}
	return p
}

// size is what the shelf takes, in bytes.
func (s *shelf) size() (n int) {
	for _, b := range s.blocks {
		n += len(b)
	}
	for _, token := range s.odd {
		n += len(token) + 32
	}
	return n
}

// write puts the tokens of slots 0 to n-1 down, one a line, empty slots left out.
func (s *shelf) write(w io.Writer, n int) (written int, err error) {
	var line []byte
	for i := range n {
		if line = s.add(line[:0], i); len(line) == 0 {
			continue
		}
		if _, err := w.Write(append(line, '\n')); err != nil {
			return written, err
		}
		written++
	}
	return written, nil
}

// saveTokens writes the tokens of several shelves to a file that nobody else may read: each is a place in line.
func saveTokens(path string, shelves []*shelf) (n int, err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	for _, s := range shelves {
		m, err := s.write(w, s.slots)
		n += m
		if err != nil {
			_ = f.Close()
			return n, err
		}
	}
	if err := w.Flush(); err != nil {
		_ = f.Close()
		return n, err
	}
	return n, f.Close()
}

// loadTokens reads a file of tokens, one a line, and deals them out to several shelves.
func loadTokens(path string, shelves int) ([]*shelf, int, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<16)
	total := 0
	for lines.Scan() {
		if len(lines.Bytes()) > 0 {
			total++
		}
	}
	if err := lines.Err(); err != nil {
		return nil, 0, fmt.Errorf("%s: %w", path, err)
	}
	if total == 0 {
		return nil, 0, fmt.Errorf("%s: holds no token: fill --tokens-out writes one a line", path)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, 0, err
	}
	all := make([]*shelf, shelves)
	for i := range all {
		all[i] = newShelf((total + shelves - 1 - i) / shelves)
	}
	lines = bufio.NewScanner(f)
	lines.Buffer(nil, 1<<16)
	for k := 0; k < total && lines.Scan(); {
		if line := lines.Text(); line != "" {
			if _, err := visitor.Decode(line); err != nil {
				return nil, 0, fmt.Errorf("%s: token %d: %w", path, k+1, err)
			}
			all[k%shelves].put(k/shelves, line)
			k++
		}
	}
	share(all, total)
	return all, total, lines.Err()
}

// share gives a token of the others to each shelf that has none, where there are fewer of them than shelves.
func share(all []*shelf, tokens int) {
	for i := tokens; tokens > 0 && i < len(all); i++ {
		all[i] = newShelf(1)
		all[i].put(0, string(all[i%tokens].add(nil, 0)))
	}
}
