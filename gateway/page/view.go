package page

import (
	"cmp"
	"html/template"
	"strconv"
	"strings"
	"time"
)

// View is the state that one visitor's page shows. Zero numbers are unknown and not shown.
type View struct {
	State        string // waiting, admitted, prequeue, rejected, expired, proof (a proof of work or CAPTCHA comes first); any other value reads as waiting
	Reason       string // rejected: closed, sold_out, draining, full, joins; expired: late, reset, removed, lapsed, ended, missing
	Position     int64  // from 1
	Ahead        int64  // people before this visitor
	Waiting      int64  // people in the queue
	ETASeconds   int64  // seconds until this visitor's turn, with its range
	ETALow       int64
	ETAHigh      int64
	ETAKnown     bool
	RefreshAfter int    // seconds until the next poll
	Message      string // the operator's, plain text
	Paused       bool
	JoinedAt     string // RFC 3339, as in the status object; identifies a place
	OpensAt      string // RFC 3339; prequeue, and rejected where it is known
	ClosesAt     string // RFC 3339, where it is known
	Now          string // RFC 3339, the server's clock, by which the page counts down; empty: the visitor's

	Facts string // address of the facts to show; empty: there are none

	AcceptLanguage string // the request header
	TakesTicket    bool   // the page's script takes a ticket, or finds the visitor's, before it polls
}

// Data is the input of a template. Every string is plain text, which html/template escapes.
type Data struct {
	Lang, Dir string
	Text      map[string]string // the language's texts, by key
	Style     template.CSS      // page.css
	Script    template.JS       // the page's script; needs <script type="application/json" id="text">{{.Texts}}</script>
	Texts     template.JS       // the language's texts for the script
	Room      string
	Site      string // the title of the site
	Absence   string // seconds that a place is kept
	Keep      string // the sentence for it
	Guard     string // address of the script that a room with a guard needs; else empty

	// The fields below differ between visitors; all may be empty except State, PageTitle, Heading, Refresh and Reload.
	PageTitle   string
	State       string
	Reason      string
	Heading     string
	Lead        string
	Opens       string // when the room opens, or closes, in words
	Note        string // why a place was lost
	Paused      string // the sentence that the room is paused
	Message     string // the operator's
	PlaceNumber string // 1234
	Place       string // 1,234, or … where it is unknown
	Ahead       string // 1,233 people ahead of you
	Waiting     string // 50,210
	Wait        string // about 10 to 15 minutes
	JoinedAt    string
	OpensAt     string // RFC 3339, of Opens
	Now         string // RFC 3339, the server's clock
	Facts       string // address of the facts
	Refresh     string // seconds to the next poll of the script; 0: the script takes a ticket first
	Reload      string // seconds to the next reload of a page without JavaScript, or its address too: content of a refresh
}

// dynamic lists the fields of d that differ between visitors.
func (d *Data) dynamic() [20]*string {
	return [...]*string{&d.PageTitle, &d.State, &d.Reason, &d.Heading, &d.Lead, &d.Opens, &d.Note, &d.Paused, &d.Message,
		&d.PlaceNumber, &d.Place, &d.Ahead, &d.Waiting, &d.Wait, &d.JoinedAt, &d.OpensAt, &d.Now, &d.Facts, &d.Refresh, &d.Reload}
}

// minReload is the least time in seconds between reloads of a page without JavaScript: each costs a whole page, and a ticket at
// the front of the queue counts as present for 20 s or more.
const minReload = 10

// fill sets the dynamic fields of d from v, in the words w.
func (d *Data) fill(w *words, v *View) {
	d.State, d.Reason, d.Now, d.Facts = v.State, clean(v.Reason), clean(v.Now), clean(v.Facts)
	d.Message = clean(v.Message)
	d.Refresh = strconv.Itoa(max(v.RefreshAfter, 1))
	d.Reload = strconv.Itoa(max(v.RefreshAfter, minReload))
	if v.TakesTicket {
		d.Refresh, d.Reload = "0", "0;url=/.waiting-room/"+d.Room+"/"
	}
	kind := v.State
	switch v.State {
	case "admitted", "prequeue":
	case "proof":
		if reasons[v.Reason] {
			d.Note = w.plain[v.Reason]
		}
	case "rejected":
		if kind = v.Reason; kind != "draining" && kind != "full" && kind != "joins" && kind != "sold_out" {
			kind = "closed"
		}
	case "expired":
		kind = "waiting"
		reason := v.Reason
		if !reasons[reason] {
			reason = "late"
		}
		if d.Note = w.plain[reason]; reason != "evacuated" { // of which the place is kept
			d.Note += " " + w.plain["anew"]
		}
	default:
		d.State, kind = "waiting", "waiting"
	}
	d.Heading, d.Lead = w.plain["h_"+kind], w.plain["l_"+kind]
	d.PageTitle = d.Heading + " · " + d.Site
	if v.Paused {
		d.Paused = w.plain["paused"]
	}
	switch v.State {
	case "prequeue", "rejected":
		d.when(w, "opening", v.OpensAt)
	case "waiting":
		d.when(w, "closing", v.ClosesAt)
	}
	if kind == "waiting" {
		d.position(w, v)
	}
}

// when sets the sentence about a future time.
func (d *Data) when(w *words, key, text string) {
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		at = at.UTC()
		d.OpensAt = at.Format(time.RFC3339)
		d.Opens = w.say(key, "t", at.Format("2006-01-02 15:04 UTC"))
	}
}

var reasons = map[string]bool{"late": true, "reset": true, "removed": true, "lapsed": true, "ended": true, "missing": true, "evacuated": true}

// position sets the sentences about a place in the queue.
func (d *Data) position(w *words, v *View) {
	d.JoinedAt = clean(v.JoinedAt)
	d.Place, d.Wait = "…", w.plain["unknown"]
	position := sane(v.Position)
	if position > 0 {
		d.PlaceNumber = strconv.FormatInt(position, 10)
		d.Place = w.whole(position)
		d.PageTitle = w.say("t_waiting", "n", d.Place, "site", d.Site)
		if d.Ahead = w.plain["next"]; v.Ahead > 0 {
			d.Ahead = w.count("ahead", 2*sane(v.Ahead))
		}
	}
	if all := max(sane(v.Waiting), position); all > 0 {
		d.Waiting = w.whole(all)
	}
	if v.ETAKnown {
		d.Wait = w.wait(sane(cmp.Or(max(v.ETALow, 0), v.ETASeconds)), sane(cmp.Or(max(v.ETAHigh, 0), v.ETASeconds)))
	}
}

// sane returns n limited to a range that JavaScript represents exactly.
func sane(n int64) int64 { return min(max(n, 0), 1<<50) }

// clean returns s with invalid UTF-8 replaced, as the page is declared UTF-8.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
