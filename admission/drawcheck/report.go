package drawcheck

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/policy"
)

// line is a ticket with its recomputed order.
type line struct {
	ticket
	computed int64
	verdict  string
	wrong    bool
}

// Report writes what is right and what is wrong, and the tickets in the order of service. It returns the number of faults.
func (d *Draw) Report(out io.Writer) (wrong int, err error) {
	w := bufio.NewWriter(out)
	check := func(what string, holds bool, is, want any) {
		if holds {
			fmt.Fprintf(w, "ok     %s\n", what)
			return
		}
		wrong++
		fmt.Fprintf(w, "WRONG  %s: it is %v instead of %v\n", what, is, want)
	}
	fmt.Fprintf(w, "room %s, opened at %s, %d tickets\n", d.room, d.opens.Format(time.RFC3339), len(d.tickets))
	sum := sha256.Sum256(d.seed[:])
	check("SHA-256(seed) is the commitment", bytes.Equal(sum[:], d.commitment), hex.EncodeToString(sum[:]), hex.EncodeToString(d.commitment))
	published := policy.Draw{Opens: d.opens.UnixMicro()}
	if !d.gathers.IsZero() {
		published.Gathers = d.gathers.UnixMicro()
	}
	check("span is the time from prequeue_at to opens_at, or an hour", d.span == published.Span(), d.span, published.Span())

	confirmed := map[admission.ID]bool{} // before the opening, by their tokens
	for _, t := range d.tickets {
		confirmed[t.id] = confirmed[t.id] || t.seen > 0
	}
	lines, late := make([]line, 0, len(d.tickets)), 0
	for _, t := range d.tickets {
		l := d.judge(t, confirmed[t.id])
		switch {
		case l.wrong:
			wrong++
		case l.order >= d.drawn:
			late++
		}
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.served(), b.served()), bytes.Compare(a.id[:], b.id[:]))
	})
	for _, l := range lines {
		fmt.Fprintf(w, "%s  %d  %s\n", l.id, l.served(), l.verdict)
	}
	switch {
	case wrong > 0:
		fmt.Fprintf(w, "%d wrong\n", wrong)
	case late > 0: // drawn is the operator's statement alone
		fmt.Fprintf(w, "nothing is wrong, and %d of %d tickets were not drawn; add the token that each had before the opening to see that\n", late, len(lines))
	default:
		fmt.Fprintln(w, "all is as it was drawn")
	}
	return wrong, w.Flush()
}

// served returns the order by which the ticket is served, as far as it is known.
func (l *line) served() int64 {
	if l.order > 0 {
		return l.order
	}
	return l.computed
}

// judge compares a ticket with the draw. confirmed: a token of the ticket was confirmed before the opening.
func (d *Draw) judge(t ticket, confirmed bool) line {
	l := line{ticket: t, computed: policy.DrawnOrder(d.seed, t.id, d.drawn, d.span)}
	switch {
	case t.seen > d.drawn:
		l.verdict, l.wrong = fmt.Sprintf("WRONG: a token without an order was confirmed at %d, after drawn", t.seen), true
	case t.order == 0:
		l.verdict = "drawn (nothing is claimed)"
	case t.order == l.computed:
		l.verdict = "as drawn"
	case t.order >= d.drawn && confirmed:
		l.verdict, l.wrong = fmt.Sprintf("WRONG: it was confirmed before the opening, and the draw gives %d", l.computed), true
	case t.order >= d.drawn:
		l.verdict = "not drawn: it came, or was confirmed, after the opening"
	default:
		l.verdict, l.wrong = fmt.Sprintf("WRONG: the draw gives %d", l.computed), true
	}
	if t.nonce == "" {
		return l
	}
	h := hmac.New(sha256.New, t.id[:8])
	h.Write([]byte(t.nonce))
	if bytes.Equal(h.Sum(nil)[:8], t.id[8:]) {
		l.verdict += ", with your nonce"
	} else {
		l.verdict, l.wrong = l.verdict+", WRONG: your nonce is not in the id (leave it out where the place was taken by a page or an account: those ids hold none)", true
	}
	return l
}
