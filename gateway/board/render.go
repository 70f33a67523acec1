package board

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"strconv"
	"time"

	"golang.org/x/text/currency"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/gateway/facts"
)

// Kept is how long a rendered board is kept.
const Kept = time.Second

// key names a form of a board.
type key struct {
	lang string // empty: JSON
	wall bool
}

type rendered struct {
	until time.Time
	body  []byte
}

// object is a board as JSON.
type object struct {
	Room     string          `json:"room"`
	State    string          `json:"state"`
	Reason   string          `json:"reason,omitempty"`
	Delayed  bool            `json:"delayed"`
	Waiting  *int64          `json:"waiting,omitempty"`
	Admitted *int64          `json:"admitted,omitempty"`
	Rate     *float64        `json:"rate,omitempty"`
	Waits    *waitsObject    `json:"waits,omitempty"`
	Lottery  *Lottery        `json:"lottery,omitempty"`
	Facts    json.RawMessage `json:"facts,omitempty"`
	Age      float64         `json:"age_seconds"`
}

type waitsObject struct {
	P50 int64 `json:"p50_seconds"`
	P90 int64 `json:"p90_seconds"`
}

// JSON returns the board as JSON. situation is called if no board of the last second is kept.
func (b *Board) JSON(delayed bool, s *admission.Snapshot, now time.Time, situation func() Situation) []byte {
	return b.keep(key{}, now, func() []byte {
		at := situation()
		o := object{Room: b.Room, State: at.State, Reason: at.Reason, Delayed: delayed, Lottery: at.Lottery, Age: seconds(at.Age)}
		if f := b.shown(delayed, s, now); f != nil {
			o.Waiting, o.Admitted, o.Rate = &f.waiting, &f.admitted, &f.rate
			if f.waits != nil {
				o.Waits = &waitsObject{f.waits[0], f.waits[1]}
			}
			o.Age = seconds(at.Age + now.Sub(f.at))
		}
		if at.Facts != nil {
			o.Facts = at.Facts.Body.Body
		}
		body, err := json.Marshal(o)
		if err != nil {
			panic(err) // numbers, texts and a document that was marshalled before
		}
		return body
	})
}

func seconds(d time.Duration) float64 {
	return float64(d.Round(100*time.Millisecond)) / float64(time.Second)
}

// keep returns a form of the board, which make makes at most once a second.
func (b *Board) keep(k key, now time.Time, make func() []byte) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r, ok := b.kept[k]; ok && now.Before(r.until) {
		return r.body
	}
	if b.kept == nil {
		b.kept = map[key]rendered{}
	}
	body := make()
	b.kept[k] = rendered{now.Add(Kept), body}
	return body
}

//go:embed board.html
var source string

//go:embed board.css
var style string

//go:embed board.js
var script string

var structure = template.Must(template.New("board.html").Parse(source))

// Policy is the Content-Security-Policy of the page.
var Policy = "default-src 'none'; style-src " + hash(style) + "; script-src " + hash(script) +
	"; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'self'"

func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// pageData is the input of board.html.
type pageData struct {
	Lang, Dir, Site string
	Wall            bool
	Text            map[string]string
	Style           template.CSS
	Script          template.JS
	State, Heading  string
	Figures         []figure
	Notices         []row
	Items           []row
	Lottery         *Lottery
	Age             string
}

type figure struct{ Label, Value string }

// row is a notice or an item.
type row struct {
	Kind, Lang, Text, Link, Price, State string
}

// Page returns the board as HTML in a language, with its texts. wall chooses large type.
func (b *Board) Page(site, lang string, texts map[string]string, wall, delayed bool, s *admission.Snapshot, now time.Time, situation func() Situation) []byte {
	return b.keep(key{lang, wall}, now, func() []byte {
		at := situation()
		p := message.NewPrinter(language.Make(lang))
		d := pageData{
			Lang: lang, Dir: texts["dir"], Site: site, Wall: wall, Text: texts, State: at.State, Heading: texts["state_"+at.State],
			Style: template.CSS(style), Script: template.JS(script), Lottery: at.Lottery, //nolint:gosec // both are embedded at build time
		}
		if at.Reason == "sold_out" {
			d.Heading = texts["state_sold_out"]
		}
		age := at.Age
		f := b.shown(delayed, s, now)
		unknown := "…"
		values := []string{unknown, unknown, unknown, unknown, unknown}
		if f != nil {
			age += now.Sub(f.at)
			values = []string{p.Sprint(number.Decimal(f.waiting)), p.Sprint(number.Decimal(f.admitted)), p.Sprint(number.Decimal(f.rate)), unknown, unknown}
			if f.waits != nil {
				values[3], values[4] = span(f.waits[0]), span(f.waits[1])
			}
		}
		for i, name := range []string{"waiting", "admitted", "rate", "p50", "p90"} {
			d.Figures = append(d.Figures, figure{texts[name], values[i]})
		}
		d.Age = fmt.Sprintf("%s: %d s", texts["age"], int64(age.Round(time.Second)/time.Second))
		if at.Facts != nil {
			d.addFacts(&at.Facts.Document, lang, texts, p)
		}
		var out bytes.Buffer
		if err := structure.Execute(&out, &d); err != nil {
			return []byte(texts["state_"+at.State]) // the template is ours, and the data are texts
		}
		return out.Bytes()
	})
}

func (d *pageData) addFacts(doc *facts.Document, lang string, texts map[string]string, p *message.Printer) {
	for _, n := range doc.Notices {
		own, text := pick(n.Text, lang)
		d.Notices = append(d.Notices, row{Kind: n.Level, Lang: own, Text: text, Link: n.Link, State: texts[n.Level]})
	}
	for _, i := range doc.Items {
		own, text := pick(i.Label, lang)
		r := row{Kind: i.State, Lang: own, Text: text, State: texts[i.State]}
		if i.Price != nil {
			r.Price = price(p, i.Price)
		}
		d.Items = append(d.Items, r)
	}
}

// pick returns the text in a language, in its base language, in English, or the first by tag.
func pick(texts map[string]string, lang string) (own, text string) {
	base, _ := language.Make(lang).Base()
	for _, tag := range []string{lang, base.String(), "en"} {
		if t, ok := texts[tag]; ok {
			return tag, t
		}
	}
	for tag, t := range texts {
		if own == "" || tag < own {
			own, text = tag, t
		}
	}
	return own, text
}

func price(p *message.Printer, price *facts.Price) string {
	unit, err := currency.ParseISO(price.Currency)
	if err != nil {
		return "" // it was checked when it was published
	}
	scale, _ := currency.Standard.Rounding(unit)
	write := func(a facts.Amount) string {
		return p.Sprint(number.Decimal(float64(a)/1000, number.MinFractionDigits(scale), number.MaxFractionDigits(3)))
	}
	text := write(price.From)
	if price.To > price.From {
		text += " – " + write(price.To)
	}
	return text + " " + price.Currency
}

// span returns seconds as 0:42 or 1:02:03.
func span(s int64) string {
	if s < 3600 {
		return strconv.FormatInt(s/60, 10) + ":" + fmt.Sprintf("%02d", s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}
