package drawcheck

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/anteroom/anteroom/admission"
)

// Draw is a lottery and its tickets as read from a file. Times are microseconds.
type Draw struct {
	room       string
	opens      time.Time
	gathers    time.Time // zero: the pre-queue was always open
	commitment []byte
	seed       [32]byte
	drawn      int64
	span       int64
	tickets    []ticket
}

type ticket struct {
	id    admission.ID
	order int64 // 0: not claimed
	seen  int64 // when a token without an order, from before the opening, was confirmed; 0: not known
	nonce string
}

// document is one object of a file: a draw, a ticket, or a response with a token.
type document struct {
	Room       string    `json:"room"`
	OpensAt    time.Time `json:"opens_at"`
	PrequeueAt time.Time `json:"prequeue_at"`
	Commitment string    `json:"commitment"`
	Seed       string    `json:"seed"`
	Drawn      int64     `json:"drawn"`
	Span       int64     `json:"span"`

	Tickets []json.RawMessage `json:"tickets"`
	ID      string            `json:"id"`
	JTI     string            `json:"jti"`
	Order   *int64            `json:"order"`
	Ord     *int64            `json:"ord"`
	Nonce   string            `json:"nonce"`
	Token   string            `json:"token"`
}

// Read reads JSON values one after another: a draw and tickets, in any order. Its error names what is missing.
func Read(in io.Reader) (*Draw, error) {
	d := &Draw{}
	from := json.NewDecoder(in)
	for n := 1; ; n++ {
		var value json.RawMessage
		if err := from.Decode(&value); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("value %d is not JSON: %w", n, err)
		}
		if err := d.value(value); err != nil {
			return nil, fmt.Errorf("value %d: %w", n, err)
		}
	}
	switch {
	case d.commitment == nil:
		return nil, errors.New("there is no draw; add the answer of GET /.waiting-room/{room}/draw")
	case d.drawn == 0:
		return nil, errors.New("the draw has not been made: the member drawn is missing; request the draw again after opens_at")
	case d.seed == [32]byte{}:
		return nil, errors.New("the draw has no seed yet; it is published one absence after the opening")
	}
	return d, nil
}

func (d *Draw) value(raw json.RawMessage) error {
	switch trimmed := bytes.TrimSpace(raw); trimmed[0] {
	case '[':
		var all []json.RawMessage
		if err := json.Unmarshal(raw, &all); err != nil {
			return err
		}
		return d.values(all)
	case '"':
		var token string
		if err := json.Unmarshal(raw, &token); err != nil {
			return err
		}
		return d.token(token, "")
	case '{':
		var doc document
		if err := json.Unmarshal(raw, &doc); err != nil {
			return err
		}
		return d.document(&doc)
	}
	return errors.New("is neither a draw nor a ticket")
}

func (d *Draw) values(all []json.RawMessage) error {
	for i, raw := range all {
		if err := d.value(raw); err != nil {
			return fmt.Errorf("[%d]: %w", i, err)
		}
	}
	return nil
}

func (d *Draw) document(doc *document) error {
	id, order := doc.ID, doc.Order
	id = cmp.Or(id, doc.JTI)
	if order == nil {
		order = doc.Ord
	}
	switch {
	case doc.Commitment != "":
		return d.draw(doc)
	case doc.Token != "":
		return d.token(doc.Token, doc.Nonce)
	case id != "":
		t := ticket{nonce: doc.Nonce}
		if order != nil {
			if t.order = *order; t.order <= 0 {
				return fmt.Errorf("order %d is not above 0; use the microseconds of the claim ord", t.order)
			}
		}
		return d.add(id, t)
	case doc.Tickets != nil:
		return d.values(doc.Tickets)
	}
	return errors.New("has neither commitment nor id nor token")
}

func (d *Draw) draw(doc *document) error {
	if d.commitment != nil {
		return errors.New("is a second draw; check one at a time")
	}
	var err error
	if d.commitment, err = hex.DecodeString(doc.Commitment); err != nil || len(d.commitment) != 32 {
		return fmt.Errorf("commitment %q is not 64 hexadecimal digits", doc.Commitment)
	}
	if doc.Seed != "" {
		seed, err := hex.DecodeString(doc.Seed)
		if err != nil || len(seed) != len(d.seed) {
			return fmt.Errorf("seed %q is not 64 hexadecimal digits", doc.Seed)
		}
		copy(d.seed[:], seed)
	}
	if doc.OpensAt.IsZero() || doc.Span <= 0 || doc.Drawn < 0 {
		return errors.New("the draw is incomplete: it needs opens_at, span and, after the opening, drawn")
	}
	d.room, d.opens, d.gathers, d.drawn, d.span = doc.Room, doc.OpensAt, doc.PrequeueAt, doc.Drawn, doc.Span
	return d.values(doc.Tickets)
}

func (d *Draw) add(id string, t ticket) error {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(id)
	if err != nil || len(raw) != len(t.id) {
		return fmt.Errorf("id %q is not 16 bytes in base64url (22 characters)", id)
	}
	copy(t.id[:], raw)
	d.tickets = append(d.tickets, t)
	return nil
}

// token reads the claims of a waiting token. The signature is not verified, as the visitor does not have the key: a forged claim
// is reported as wrong.
func (d *Draw) token(token, nonce string) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errors.New("is not a token: it does not have three parts between dots")
	}
	text, err := base64.RawURLEncoding.DecodeString(parts[1])
	var claims struct {
		JTI  string `json:"jti"`
		Ord  int64  `json:"ord"`
		Ep   string `json:"ep"`
		Seen int64  `json:"seen"`
	}
	if err != nil || json.Unmarshal(text, &claims) != nil {
		return errors.New("is not a token: its claims are not JSON in base64url")
	}
	t := ticket{order: max(0, claims.Ord), nonce: nonce}
	if t.order == 0 && claims.Ep != "" && claims.Ep != "?" {
		t.seen = claims.Seen
	}
	return d.add(claims.JTI, t)
}
