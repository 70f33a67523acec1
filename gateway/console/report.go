package console

import (
	"bytes"
	"context"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/anteroom/anteroom/admission"
	"github.com/anteroom/anteroom/admission/series"
	"github.com/anteroom/anteroom/gateway/access"
	"github.com/anteroom/anteroom/gateway/report"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// reportForms are the forms of a report, with their media types.
var reportForms = []struct{ name, media string }{{"html", "text/html"}, {"json", "application/json"}, {"csv", "text/csv"}, {"rows", "application/vnd.anteroom.rows+json"}}

// formOf returns the form that a request asks for: by format, else the first of the forms that Accept names, else html.
func formOf(r *http.Request) (string, error) {
	name := r.URL.Query().Get("format")
	if name == "" {
		for part := range strings.SplitSeq(r.Header.Get("Accept"), ",") {
			media, _, _ := strings.Cut(part, ";")
			for _, f := range reportForms {
				if strings.TrimSpace(media) == f.media {
					return f.name, nil
				}
			}
		}
		return "html", nil
	}
	for _, f := range reportForms {
		if f.name == name {
			return name, nil
		}
	}
	return "", ophttp.Invalid(ophttp.Fault{Path: "format", Value: []byte(strconv.Quote(ophttp.Shorten(name))), Problem: "is not one of them", Allowed: "html, json, csv or rows"})
}

func (c insights) report(w http.ResponseWriter, r *http.Request, _ *access.Person, room Room) error {
	form, err := formOf(r)
	if err != nil {
		return err
	}
	now := room.Queue.RedisNow()
	in, err := parseRange(r, now/1e6, 24*3600-60)
	if err != nil {
		return err
	}
	source := report.Source{Room: room.Queue.ID(), Made: now, Method: room.Queue.Snapshot().Policy.Method}
	if source.Table, source.Range, err = c.table(r, room, series.Reaching(in.From, now/1e6, series.Minute), in); err != nil {
		return err
	}
	entries, err := read(r, func(ctx context.Context) ([]admission.Entry, error) {
		return c.o.Core.Audit(ctx, maxEntries, func(id string) bool { return id == source.Room })
	})
	if err != nil {
		return err
	}
	for _, e := range slices.Backward(entries) {
		if source.Range.Holds(e.At) {
			v := viewEntry(e)
			source.Changes = append(source.Changes, report.Change{At: report.Time(v.At), Who: v.Who, Action: v.Action, Before: v.Before, After: v.After})
		}
	}
	source.Draws = drawsIn(room, source.Range)
	if form == "rows" {
		return ophttp.OK(w, report.NewRows(source))
	}
	full := report.New(source)
	var body bytes.Buffer
	switch form {
	case "json":
		return ophttp.OK(w, full)
	case "csv":
		w.Header().Set("Content-Disposition", `attachment; filename="`+room.Queue.ID()+`.csv"`)
		err = full.WriteCSV(&body)
	default:
		w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		err = full.WriteHTML(&body)
	}
	if err != nil {
		return err
	}
	for _, f := range reportForms {
		if f.name == form {
			ophttp.Write(w, http.StatusOK, f.media+"; charset=utf-8", body.Bytes())
		}
	}
	return nil
}

// drawsIn returns the lotteries of a room that open in a range.
func drawsIn(room Room, in series.Range) (list []report.Draw) {
	for _, opens := range room.File.Plan.Openings() {
		if in.Holds(opens / 1e6) {
			commitment, _, _ := room.Queue.Commitment(room.File.Plan.Draw(opens))
			list = append(list, report.Draw{OpensAt: report.Time(opens), Commitment: hex.EncodeToString(commitment[:]), Published: "/.waiting-room/" + room.Queue.ID() + "/draw"})
		}
	}
	return list
}
