package facts

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// States of an item.
const (
	Available = "available"
	Low       = "low"
	SoldOut   = "sold_out"
)

// Levels of a notice.
const (
	Info    = "info"
	Warning = "warning"
	Urgent  = "urgent"
)

// Actions of the audit log that change what a room publishes.
const (
	ActionFacts  = "facts"  // the items
	ActionNotice = "notice" // a notice was written or removed
)

// Document is what a room publishes.
type Document struct {
	Items   []Item   `json:"items"`
	Notices []Notice `json:"notices"` // by id
}

// Item is something on sale.
type Item struct {
	ID    string            `json:"id"`
	Label map[string]string `json:"label"` // by language
	State string            `json:"state"`
	Price *Price            `json:"price,omitempty"`
}

// Price is a price or, with To, a range of prices.
type Price struct {
	From     Amount `json:"from"`
	To       Amount `json:"to,omitempty"`
	Currency string `json:"currency"` // ISO 4217
}

// Notice is a sentence for those who wait.
type Notice struct {
	ID    string            `json:"id"`
	Level string            `json:"level"`
	Text  map[string]string `json:"text"`            // by language
	Link  string            `json:"link,omitempty"`  // https://…, or a path of the site
	Until *time.Time        `json:"until,omitempty"` // UTC; nil: until it is removed
}

// Amount is an amount of money in thousandths, the smallest part that a currency has.
type Amount int64

// String returns the amount as a decimal without trailing zeros.
func (a Amount) String() string {
	fraction := strings.TrimRight(fmt.Sprintf("%03d", a%1000), "0")
	if fraction == "" {
		return strconv.FormatInt(int64(a/1000), 10)
	}
	return strconv.FormatInt(int64(a/1000), 10) + "." + fraction
}

// MarshalJSON writes the amount as a JSON number.
func (a Amount) MarshalJSON() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalJSON reads what MarshalJSON writes.
func (a *Amount) UnmarshalJSON(b []byte) error {
	whole, fraction, _ := strings.Cut(string(b), ".")
	n, err := strconv.ParseInt(whole+(fraction + "000")[:3], 10, 64)
	if err != nil || len(fraction) > 3 || n < 0 {
		return fmt.Errorf("%s is no amount with up to three decimal places", b)
	}
	*a = Amount(n)
	return nil
}

// Parse reads the text of a document as Text returns it. The text "" is the document without items and notices.
func Parse(text string) (Document, error) {
	d := Document{Items: []Item{}, Notices: []Notice{}}
	if text == "" {
		return d, nil
	}
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return Document{}, fmt.Errorf("the facts in the store: %w", err)
	}
	return d, nil
}

// Text returns the document as JSON. Equal documents have equal texts.
func (d *Document) Text() string {
	c := Document{Items: d.Items, Notices: slices.Clone(d.Notices)}
	if c.Items == nil {
		c.Items = []Item{}
	}
	if c.Notices == nil {
		c.Notices = []Notice{}
	}
	slices.SortFunc(c.Notices, func(a, b Notice) int { return strings.Compare(a.ID, b.ID) })
	return marshal(&c)
}

// marshal returns v as JSON in which <, > and & are escaped.
func marshal(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // texts, amounts and times always marshal
	}
	return string(b)
}

// SoldOut reports whether there are items and every one is sold out.
func (d *Document) SoldOut() bool {
	return len(d.Items) > 0 && !slices.ContainsFunc(d.Items, func(i Item) bool { return i.State != SoldOut })
}

// Current returns the document without the notices whose time is over.
func (d *Document) Current(now time.Time) Document {
	c := Document{Items: d.Items, Notices: []Notice{}}
	for _, n := range d.Notices {
		if n.Until == nil || n.Until.After(now) {
			c.Notices = append(c.Notices, n)
		}
	}
	return c
}

// Notice returns the notice with an id, or nil.
func (d *Document) Notice(id string) *Notice {
	if i := slices.IndexFunc(d.Notices, func(n Notice) bool { return n.ID == id }); i >= 0 {
		return &d.Notices[i]
	}
	return nil
}

// Hash returns the SHA-256 of a text in hexadecimal, and "" for the text "".
func Hash(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// Version returns the version that a hash stands for: its first 16 digits.
func Version(hash string) string { return hash[:min(16, len(hash))] }

// Tag returns the version of a part of a document, and "none" for no part.
func Tag(part any) string {
	if text := marshal(part); text != "[]" && text != "null" {
		return Version(Hash(text))
	}
	return "none"
}
