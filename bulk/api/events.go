package api

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

const (
	eventEvery = time.Second
	heartbeat  = 15 * time.Second // a comment, where nothing changes for so long
	lastEvent  = "end"            // id of a stream's last event
)

// events streams a group's progress until its end: an event at once, one a second while it changes, and one at the end, or
// when the group is deleted.
func (s *Server) events(w http.ResponseWriter, r *http.Request, who identity) error {
	g, err := s.group(r, who)
	if err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	if g.Status.Ended() && r.Header.Get("Last-Event-ID") == lastEvent {
		w.WriteHeader(http.StatusNoContent) // tells a browser's EventSource not to come again
		return nil
	}
	if s.streams.Add(1) > int64(s.o.Limits.Streams) {
		s.streams.Add(-1)
		p := ophttp.NewProblem(http.StatusServiceUnavailable, "too_many_streams", "%d event streams are open, as many as this process serves: poll GET /v1/groups/%s", s.o.Limits.Streams, g.ID)
		p.RetryAfter = 5 * time.Second
		return p
	}
	defer s.streams.Add(-1)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	out := ophttp.Flowing(w, s.o.Limits.Idle)
	if r.Method == http.MethodHead {
		return nil
	}
	_, _ = out.Write([]byte("retry: 2000\n\n"))
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	v := s.view(g)
	var last []byte
	said := s.o.Now()
	for {
		over := v.Status.Ended() && v.InFlight == 0 // some jobs of a cancelled group may still run
		if data := ophttp.Marshal(v); !bytes.Equal(data, last) || over {
			id := ""
			if over {
				id = "id: " + lastEvent + "\n"
			}
			if _, err := fmt.Fprintf(out, "event: progress\n%sdata: %s\n\n", id, data); err != nil || over {
				return nil
			}
			last, said = data, s.o.Now()
		} else if s.o.Now().Sub(said) >= heartbeat {
			if _, err := out.Write([]byte(":\n\n")); err != nil {
				return nil
			}
			said = s.o.Now()
		}
		out.Send()
		select {
		case <-r.Context().Done():
			return nil
		case <-s.closing:
			return nil
		case <-tick.C:
		}
		g, err := s.store.Group(r.Context(), v.ID)
		if _, gone := errors.AsType[*store.Refusal](err); gone {
			_, _ = fmt.Fprintf(out, "event: deleted\nid: %s\ndata: %s\n\n", lastEvent, ophttp.Marshal(v)) // or past its retention
			return nil
		}
		if err == nil { // an outage shows as silence; the stream goes on when the store does
			v = s.view(g)
		}
	}
}
