package console

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anteroom/anteroom/gateway/facts"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// factsDecoder collects the faults of a body.
type factsDecoder struct{ faults []ophttp.Fault }

// decodeItems decodes the body of PUT rooms/{id}/facts and returns all its faults. The items may be used only without faults.
func decodeItems(body []byte) ([]facts.Item, []ophttp.Fault) {
	d := &factsDecoder{}
	items, given := []facts.Item{}, false
	ophttp.Members(body, func(name, value []byte) bool {
		if string(name) != "items" {
			d.unknown(string(name), "items")
			return true
		}
		given = true
		var list []json.RawMessage
		if json.Unmarshal(value, &list) != nil || list == nil {
			d.fault("items", value, "is not a list", "a list of items; [] removes them")
			return true
		}
		if len(list) > facts.MaxItems {
			d.fault("items", nil, fmt.Sprintf("has %d items", len(list)), fmt.Sprintf("at most %d", facts.MaxItems))
			return true
		}
		seen := map[string]bool{}
		for i, raw := range list {
			at := fmt.Sprintf("items[%d]", i)
			item := d.item(at, raw)
			if item.ID != "" && seen[item.ID] {
				d.fault(at+".id", ophttp.Marshal(item.ID), "is given twice", "an id of its own for each item")
			}
			seen[item.ID] = true
			items = append(items, item)
		}
		return true
	})
	if !given && len(d.faults) == 0 {
		d.fault("items", nil, "is missing", "a list of items; [] removes them")
	}
	return items, d.faults
}

func (d *factsDecoder) item(at string, raw []byte) (item facts.Item) {
	if !d.object(at, raw) {
		return item
	}
	missing := d.members(at, raw, []string{"id", "label", "state"}, []string{"price"}, func(path, name string, value []byte) {
		switch name {
		case "id":
			id, isText := text(value)
			if item.ID = id; !isText {
				d.fault(path, value, "is not text", "an id such as standing")
			} else if wrong := facts.CheckID(id); wrong != "" {
				d.fault(path, value, wrong, "an id such as standing")
			}
		case "label":
			item.Label = d.texts(path, value, facts.MaxLabel)
		case "state":
			v, isText := text(value)
			if item.State = v; !isText || v != facts.Available && v != facts.Low && v != facts.SoldOut {
				d.fault(path, value, "is no state of an item", "available, low or sold_out")
			}
		case "price":
			item.Price = d.price(path, value)
		}
	})
	d.require(at, missing)
	return item
}

func (d *factsDecoder) price(at string, raw []byte) *facts.Price {
	if !d.object(at, raw) {
		return nil
	}
	p := &facts.Price{}
	before := len(d.faults)
	missing := d.members(at, raw, []string{"from", "currency"}, []string{"to"}, func(path, name string, value []byte) {
		switch name {
		case "from":
			p.From = d.amount(path, value)
		case "to":
			p.To = d.amount(path, value)
		case "currency":
			code, isText := text(value)
			if p.Currency = code; !isText || facts.CheckCurrency(code) != "" {
				d.fault(path, value, "is not the code of a currency", "a code of ISO 4217, such as EUR")
			}
		}
	})
	d.require(at, missing)
	if len(d.faults) == before && p.To != 0 && p.To < p.From {
		d.fault(at+".to", ophttp.Marshal(p.To), "is less than from", "from or more")
	}
	if p.To == p.From {
		p.To = 0
	}
	return p
}

func (d *factsDecoder) amount(path string, raw []byte) facts.Amount {
	const allowed = "a number from 0 to 1000000000 with at most three decimal places"
	if !ophttp.IsNumber(raw) {
		d.fault(path, raw, "is not a number", allowed)
		return 0
	}
	n, err := exact(string(raw), 3)
	if err == nil && (n < 0 || facts.Amount(n) > facts.MaxAmount) {
		err = errRange
	}
	if err != nil {
		d.fault(path, raw, err.Error(), allowed)
		return 0
	}
	return facts.Amount(n)
}

// decodeNotice decodes the body of PUT rooms/{id}/notices/{notice}.
func decodeNotice(id string, body []byte) (n facts.Notice, faults []ophttp.Fault) {
	d := &factsDecoder{}
	missing := d.members("", body, []string{"level", "text"}, []string{"id", "link", "until"}, func(path, name string, value []byte) {
		switch name {
		case "id":
			v, isText := text(value)
			if n.ID = v; !isText || v != id {
				d.fault(path, value, "is not the id in the path", id)
			}
		case "level":
			v, isText := text(value)
			if n.Level = v; !isText || v != facts.Info && v != facts.Warning && v != facts.Urgent {
				d.fault(path, value, "is no level", "info, warning or urgent")
			}
		case "text":
			n.Text = d.texts(path, value, facts.MaxSentence)
		case "link":
			const allowed = "https://… or a path of the site, such as /news"
			v, isText := text(value)
			if n.Link = v; !isText {
				d.fault(path, value, "is not text", allowed)
			} else if wrong := facts.CheckLink(v); wrong != "" {
				d.fault(path, value, wrong, allowed)
			}
		case "until":
			v, _ := text(value)
			at, err := time.Parse(time.RFC3339, v)
			if err != nil {
				d.fault(path, value, "is not a time", "a time such as 2031-05-01T18:00:00Z")
				return
			}
			n.Until = new(at.UTC().Truncate(time.Second))
		}
	})
	d.require("", missing)
	n.ID = id
	return n, d.faults
}

// texts decodes texts by language.
func (d *factsDecoder) texts(path string, raw []byte, most int) map[string]string {
	allowed := fmt.Sprintf("texts of at most %d characters by language, as {\"en\": \"…\"}", most)
	if !isObject(raw) {
		d.fault(path, raw, "is not an object", allowed)
		return nil
	}
	if err := checkNames(raw, path, 1); err != nil {
		d.fault(path, raw, "has a language twice", allowed)
		return nil
	}
	texts := map[string]string{}
	before := len(d.faults)
	ophttp.Members(raw, func(name, value []byte) bool {
		v, isText := text(value)
		if !isText {
			d.fault(join(path, string(name)), value, "is not text", allowed)
		}
		texts[string(name)] = v
		return true
	})
	if len(d.faults) > before {
		return nil
	}
	if lang, wrong := facts.CheckTexts(texts, most); wrong != "" {
		at := path
		if lang != "" {
			at = join(path, lang)
		}
		d.fault(at, nil, wrong, allowed)
	}
	return texts
}

// members calls f with the members of an object, reports unknown ones, and returns the required ones that it lacks.
func (d *factsDecoder) members(at string, raw []byte, required, others []string, f func(path, name string, value []byte)) (missing []string) {
	seen := map[string]bool{}
	ophttp.Members(raw, func(name, value []byte) bool {
		n := string(name)
		path := join(at, n)
		known := slices.Concat(required, others)
		switch {
		case !slices.Contains(known, n):
			d.unknown(path, strings.Join(known, ", "))
		case seen[n]:
			d.fault(path, value, "is given twice", "once")
		default:
			f(path, n, value)
		}
		seen[n] = true
		return true
	})
	for _, name := range required {
		if !seen[name] {
			missing = append(missing, name)
		}
	}
	return missing
}

func (d *factsDecoder) object(path string, raw []byte) bool {
	if !isObject(raw) {
		d.fault(path, raw, "is not an object", "an object")
		return false
	}
	return true
}

func (d *factsDecoder) require(at string, missing []string) {
	for _, name := range missing {
		d.fault(join(at, name), nil, "is missing", "a value")
	}
}

func (d *factsDecoder) unknown(path, allowed string) {
	d.fault(path, nil, "is not a field of this request", allowed)
}

func (d *factsDecoder) fault(path string, raw []byte, problem, allowed string) {
	f := ophttp.Fault{Path: path, Problem: problem, Allowed: allowed}
	if raw != nil {
		f.Value = ophttp.Excerpt(raw)
	}
	d.faults = append(d.faults, f)
}
