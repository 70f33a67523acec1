package gateway

import (
	"bytes"
	"context"
	"encoding/hex"
	"sync"
	"time"

	"github.com/anteroom/anteroom/gateway/answer"
	"github.com/anteroom/anteroom/gateway/board"
	"github.com/anteroom/anteroom/gateway/page"
)

// boardTexts are the words of boards by language.
var boardTexts = sync.OnceValue(func() map[string]map[string]string {
	texts, err := page.BoardTexts()
	if err != nil {
		panic(err) // embedded at build time
	}
	return texts
})

// serveBoard sends the public board of the room, as HTML or as JSON.
func serveBoard(v *visit) (decision, *answer.Problem) {
	r := v.room
	mode := r.options.Board
	if mode != board.On && mode != board.Delayed {
		return decision{}, answer.NoBoard
	}
	path, query, _ := bytes.Cut(v.target, []byte("?"))
	s, delayed := r.queue.Snapshot(), mode == board.Delayed
	fields := [][2]string{{"Cache-Control", "public, max-age=1"}, {"Vary", "Accept-Language"}}
	if bytes.HasSuffix(path, []byte(".json")) {
		fields[1][1] = "" // one for every client
		if len(r.options.CORSOrigins) > 0 {
			fields[1][1] = "Origin"
		}
		v.out.Shared = r.board.JSON(delayed, s, v.start, r.situation)
		return document(waiting, 200, answer.TypeJSON, fields...), nil
	}
	lang := r.pages.plain.Language(string(v.req.Peek("accept-language")))
	v.out.Shared = r.board.Page(r.pages.plain.Site(lang), lang, boardTexts()[lang], string(query) == "wall=1", delayed, s, v.start, r.situation)
	fields = append(fields, [2]string{"Content-Security-Policy", board.Policy}, [2]string{"Referrer-Policy", "same-origin"})
	return document(waiting, 200, "text/html; charset=utf-8", fields...), nil
}

// situation returns what the board of the room shows besides figures.
func (r *room) situation() board.Situation {
	s := r.queue.Snapshot()
	at := board.Situation{State: "waiting", Facts: r.view(), Age: r.queue.Age()}
	switch p := &s.Policy; {
	case p.Open():
		at.State = "open"
	case p.Closed():
		if at.State, at.Reason = "closed", "closed"; p.SoldOut {
			at.Reason = answer.ReasonSoldOut
		}
	case s.Gathering():
		at.State = "prequeue"
	case p.Paused:
		at.State, at.Reason = "paused", "paused"
	case s.AdmitsNow():
		at.State = "open"
	}
	if at.Reason == "" && at.Age > storeAway {
		at.Reason = "store"
	}
	if at.Reason == "" && s.Policy.Draining {
		at.Reason = "draining"
	}
	if d, _ := r.lottery(s); d != nil {
		commitment, _, _ := r.queue.Commitment(d)
		at.Lottery = &board.Lottery{OpensAt: answer.FormatTime(d.Opens), Commitment: hex.EncodeToString(commitment[:])}
	}
	return at
}

// boardSampler notes the figures of delayed boards each second.
type boardSampler struct{ g *Gateway }

// run samples until ctx ends.
func (b boardSampler) run(ctx context.Context) {
	t := time.NewTicker(time.Second)
	defer t.Stop()
	for {
		for _, r := range b.g.state.Load().rooms {
			if s := r.queue.Snapshot(); r.options.Board == board.Delayed && s.Known {
				r.board.Sample(s, time.Now())
			}
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
}
