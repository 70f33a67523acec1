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
	heartbeat  = 15 * time.Second // a comment is sent after so long without a change
	lastEvent  = "end"            // id of a stream's last event
)

// events streams a group's progress: one event now, one a second while the group changes, and a last one when it ends
// or is deleted.
func (s groupRoutes) events(w http.ResponseWriter, r *http.Request, who identity) error {
	g, err := s.group(r, who)
	if err != nil {
		return err
	}
	if err := noQuery(r); err != nil {
		return err
	}
	if g.Status.Ended() && r.Header.Get("Last-Event-ID") == lastEvent {
		w.WriteHeader(http.StatusNoContent) // stops a browser's EventSource from reconnecting
		return nil
	}
	if !s.streams.take(who, 1) {
		p := ophttp.NewProblem(http.StatusServiceUnavailable, "too_many_streams", "all %d event streams of this process, or those that one token can have, are in use: poll GET /v1/groups/%s", s.o.Limits.Streams, g.ID)
		p.RetryAfter = 5 * time.Second
		return p
	}
	defer s.streams.free(who, 1)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no") // nginx would buffer events
	out := ophttp.Flowing(w, s.o.Limits.Idle)
	if r.Method == http.MethodHead {
		return nil
	}
	_, _ = out.Write([]byte("retry: 2000\n\n"))
	tick := time.NewTicker(eventEvery)
	defer tick.Stop()
	v := s.view(g)
	var last []byte
	sentAt := s.o.Now()
	for {
		over := v.Status.Ended() && v.InFlight == 0 // jobs of a cancelled group may still run
		if data := ophttp.Marshal(v); !bytes.Equal(data, last) || over {
			id := ""
			if over {
				id = "id: " + lastEvent + "\n"
			}
			if _, err := fmt.Fprintf(out, "event: progress\n%sdata: %s\n\n", id, data); err != nil || over {
				return nil
			}
			last, sentAt = data, s.o.Now()
		} else if s.o.Now().Sub(sentAt) >= heartbeat {
			if _, err := out.Write([]byte(":\n\n")); err != nil {
				return nil
			}
			sentAt = s.o.Now()
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
			_, _ = fmt.Fprintf(out, "event: deleted\nid: %s\ndata: %s\n\n", lastEvent, ophttp.Marshal(v)) // or its retention has passed
			return nil
		}
		if err == nil { // during an outage the stream is silent
			v = s.view(g)
		}
	}
}
