package jobfile

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/anteroom/anteroom/bulk/client"
)

// fields are the fields of a job that a column can have.
var fields = []string{"id", "type", "cost", "run_at", "payload"}

// maxRecord bounds the bytes of a record: after a quote that is never closed, a record would be the rest of the file.
const maxRecord = 4 * client.MaxLine

// Options determine how a CSV file is read.
type Options struct {
	// Delimiter separates the cells; 0: the most frequent of comma, semicolon and tab in the header.
	Delimiter rune
	// Columns maps the name of a job's field to the name of its column, where the two differ. The column stays a part of the
	// payload.
	Columns map[string]string
}

// Records is a CSV file as a client.Source. The first record names the columns. A column id, type, cost, run_at or payload is
// that field of the job. Without a column payload, the payload is an object of the other columns, each as a string.
type Records struct {
	r      *csv.Reader
	limit  *bounded
	header []string
	index  map[string]int // columns of fields
	object []int          // columns of the payload
	whole  bool           // the column payload is the payload
	line   bytes.Buffer
	text   *json.Encoder // writes to line
	taken  int64         // records that were read
	sized  int64         // bytes of the file that Append has returned as sizes; the size of the first record includes the header
	lines  []position    // records that do not begin at the line after the begin of the record before
	next   int64         // line of the next record, if the last record has one line
}

// position is the line at which a record begins. The records after it, up to the next position, have a line each.
type position struct{ record, line int64 }

// NewRecords reads the header of a CSV file.
func NewRecords(r io.Reader, o Options) (*Records, error) {
	for field := range o.Columns {
		if !slices.Contains(fields, field) {
			return nil, fmt.Errorf("%q is no field of a job: use %s", field, strings.Join(fields, ", "))
		}
	}
	limit := &bounded{r: r, left: maxRecord}
	b := bufio.NewReaderSize(limit, 64<<10)
	mark := int64(0)
	begin, _ := b.Peek(3) // the next read returns its error again
	switch {
	case bytes.HasPrefix(begin, []byte("\ufeff")):
		_, _ = b.Discard(3)
		mark = 3
	case bytes.HasPrefix(begin, []byte{0xff, 0xfe}), bytes.HasPrefix(begin, []byte{0xfe, 0xff}):
		return nil, errors.New("the file is UTF-16: save it as CSV UTF-8, or convert it with iconv -f UTF-16 -t UTF-8")
	}
	if o.Delimiter == 0 {
		text, _ := b.Peek(32 << 10) // as much as there is
		o.Delimiter = delimiter(text)
	}
	c := &Records{r: csv.NewReader(b), limit: limit, index: map[string]int{}, next: 2, sized: -mark}
	c.r.Comma, c.r.ReuseRecord = o.Delimiter, true
	c.text = json.NewEncoder(&c.line)
	c.text.SetEscapeHTML(false)
	header, err := c.r.Read()
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty: the first line of a CSV file names its columns")
	}
	if err != nil {
		return nil, explain(err)
	}
	c.header = slices.Clone(header)
	return c, c.assign(o.Columns)
}

// delimiter returns the most frequent delimiter in the first line of a text, outside of quotes.
func delimiter(text []byte) rune {
	n := map[rune]int{}
	quoted := false
	for _, c := range string(text) {
		if c == '"' {
			quoted = !quoted
		} else if c == '\n' && !quoted {
			break
		} else if !quoted {
			n[c]++
		}
	}
	best := ','
	for _, c := range []rune{';', '\t'} {
		if n[c] > n[best] {
			best = c
		}
	}
	return best
}

// assign finds the columns of fields and of the payload.
func (c *Records) assign(columns map[string]string) error {
	at := map[string]int{}
	for i, name := range c.header {
		name = strings.TrimSpace(name)
		if !utf8.ValidString(name) {
			return fmt.Errorf("the header: %w", errNotUTF8)
		}
		if name == "" {
			return fmt.Errorf("column %d has no name: the first line of a CSV file names its columns", i+1)
		}
		if _, twice := at[name]; twice {
			return fmt.Errorf("two columns have the name %q", name)
		}
		at[name], c.header[i] = i, name
	}
	for _, field := range slices.Sorted(maps.Keys(columns)) {
		i, there := at[columns[field]]
		if !there {
			return fmt.Errorf("there is no column %q for the field %s: the columns are %s", columns[field], field, strings.Join(c.header, ", "))
		}
		c.index[field] = i
	}
	for i, name := range c.header {
		if _, given := columns[name]; slices.Contains(fields, name) && !given {
			c.index[name] = i
		}
	}
	// A column with the name of a field is that field alone; one that Columns names is a part of the payload too.
	_, payload := c.index["payload"]
	for i, name := range c.header {
		if at, named := c.index[name]; named && at == i {
			continue
		}
		c.object = append(c.object, i)
		mapped := slices.Contains(slices.Collect(maps.Values(c.index)), i)
		if payload && !mapped {
			return fmt.Errorf("the columns payload and %q exclude each other: with a column payload, each other column must be one of the fields %s; remove one of the two", name, strings.Join(fields, ", "))
		}
	}
	c.whole = payload
	return nil
}

var errNotUTF8 = errors.New("not valid UTF-8: convert the file, as with iconv -f WINDOWS-1252 -t UTF-8")

// Append appends the line of the next record, as client.Source describes.
func (c *Records) Append(b []byte) ([]byte, int64, error) {
	c.limit.left = maxRecord + (64 << 10) // with what the buffers read ahead
	record, err := c.r.Read()
	size := c.r.InputOffset() - c.sized
	wrong := ""
	switch {
	case errors.Is(err, io.EOF):
		return b, 0, io.EOF
	case errors.Is(err, csv.ErrFieldCount):
		wrong = fmt.Sprintf("it has %d cells, and the header has %d", len(record), len(c.header))
	case err != nil:
		return b, 0, explain(err)
	}
	c.sized += size
	c.locate(record)
	if wrong == "" {
		wrong = c.write(record)
	}
	if wrong == "" && c.line.Len() > client.MaxLine {
		wrong = fmt.Sprintf("the job has %d bytes; a job has at most %d", c.line.Len(), client.MaxLine)
	}
	if wrong != "" {
		return append(b, '\n'), size, &client.LineError{Reason: wrong}
	}
	return append(b, c.line.Bytes()...), size, nil
}

// locate records the line of a record that does not begin at the line after the record before.
func (c *Records) locate(record []string) {
	c.taken++
	if len(record) == 0 {
		return
	}
	line, _ := c.r.FieldPos(0)
	if int64(line) != c.next || len(c.lines) == 0 {
		c.lines = append(c.lines, position{c.taken, int64(line)})
	}
	c.next = int64(line) + 1
}

// Line returns the line at which a record begins; records count from 1. It must not be called for an earlier record later.
func (c *Records) Line(record int64) int64 {
	i := 0
	for i+1 < len(c.lines) && c.lines[i+1].record <= record {
		i++
	}
	if len(c.lines) == 0 {
		return record + 1
	}
	c.lines = c.lines[i:]
	return c.lines[0].line + record - c.lines[0].record
}

// write writes a record as a job; wrong is the reason why it is not one.
func (c *Records) write(record []string) (wrong string) {
	for i, cell := range record {
		if !utf8.ValidString(cell) {
			return fmt.Sprintf("column %q: %v", c.header[i], errNotUTF8)
		}
	}
	c.line.Reset()
	c.line.WriteByte('{')
	for _, field := range []string{"id", "type", "run_at"} {
		if i, there := c.index[field]; there && record[i] != "" {
			c.line.WriteString(`"` + field + `":`)
			c.value(record[i])
			c.line.WriteByte(',')
		}
	}
	if i, there := c.index["cost"]; there && record[i] != "" {
		n, err := strconv.ParseInt(strings.TrimSpace(record[i]), 10, 64)
		if err != nil {
			return fmt.Sprintf("column %q: the cost %q is not a whole number", c.header[i], record[i])
		}
		c.line.WriteString(`"cost":` + strconv.FormatInt(n, 10) + ",")
	}
	c.line.WriteString(`"payload":`)
	if c.whole {
		i := c.index["payload"]
		if err := json.Compact(&c.line, []byte(record[i])); err != nil || strings.TrimSpace(record[i]) == "" {
			return fmt.Sprintf("column %q is not valid JSON: in JSON, text has quotes, and CSV writes each of them twice", c.header[i])
		}
	} else {
		c.line.WriteByte('{')
		for n, i := range c.object {
			if n > 0 {
				c.line.WriteByte(',')
			}
			c.value(c.header[i])
			c.line.WriteByte(':')
			c.value(record[i])
		}
		c.line.WriteByte('}')
	}
	c.line.WriteString("}\n")
	return ""
}

// value writes a text in JSON.
func (c *Records) value(s string) {
	_ = c.text.Encode(s) // never fails for a string
	c.line.Truncate(c.line.Len() - 1)
}

// explain adds to an error of CSV how to correct it.
func explain(err error) error {
	if e, ok := errors.AsType[*csv.ParseError](err); ok && (errors.Is(err, csv.ErrQuote) || errors.Is(err, csv.ErrBareQuote)) {
		return fmt.Errorf("line %d, column %d: %w; put a cell that has quotes in quotes, and write each quote in it twice", e.Line, e.Column, e.Err)
	}
	return err
}

// bounded fails after left bytes.
type bounded struct {
	r    io.Reader
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("a record has more than %d bytes: perhaps a quote is not closed", maxRecord)
	}
	n, err := b.r.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}
