package table

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Causes holds how often each cause occurred.
type Causes map[string]int64

// Sum returns how often all causes together occurred.
func (c Causes) Sum() (sum int64) {
	for _, n := range c {
		sum += n
	}
	return sum
}

// Print prints a line for each cause, sorted. The format has a verb for the number and one for the cause.
func (c Causes) Print(w io.Writer, format string) {
	for _, why := range slices.Sorted(maps.Keys(c)) {
		fmt.Fprintf(w, format, c[why], why)
	}
}

// Counts guards the counts of a report that several goroutines change.
type Counts struct{ sync.Mutex }

// Add adds n to a count.
func (c *Counts) Add(count *int64, n int64) {
	c.Lock()
	defer c.Unlock()
	*count += n
}

// mostCauses is the largest number of causes that are counted separately.
const mostCauses = 100

// Note adds n to a cause.
func (c *Counts) Note(in Causes, why string, n int64) {
	c.Lock()
	defer c.Unlock()
	if _, ok := in[why]; !ok && len(in) >= mostCauses {
		why = "other causes"
	}
	in[why] += n
}

// Broken lists the bars that a run missed.
type Broken []string

// If adds a bar if it was missed.
func (b *Broken) If(missed bool, format string, args ...any) {
	if missed {
		*b = append(*b, fmt.Sprintf(format, args...))
	}
}

// Err returns an error that names the bars, or nil if none was missed.
func (b Broken) Err() error {
	if len(b) == 0 {
		return nil
	}
	return errors.New(strings.Join(b, "\n"))
}
