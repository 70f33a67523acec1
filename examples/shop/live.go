package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/gorilla/websocket"
)

const (
	heartbeat    = 15 * time.Second
	writeTimeout = 10 * time.Second
)

// stream sends the seat map as server-sent events: `seats` with all sold seats, then `change` after each sale.
func (s *shop) stream(w http.ResponseWriter, r *http.Request) {
	e, ok := s.event(w, r)
	if !ok {
		return
	}
	now, changes := e.subscribe()
	defer e.unsubscribe(changes)
	out := http.NewResponseController(w)
	if err := out.SetReadDeadline(time.Time{}); err != nil { // the server's read timeout applies to requests only
		return
	}
	send := func(format string, args ...any) bool {
		if err := out.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return false
		}
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return false
		}
		return out.Flush() == nil
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	if !send("retry: 2000\nevent: seats\ndata: %s\n\n", marshal(now)) {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		ok := true
		select {
		case c, open := <-changes:
			ok = open && send("event: change\ndata: %s\n\n", marshal(c))
		case <-beat.C:
			ok = send(": still here\n\n")
		case <-r.Context().Done():
			return
		case <-s.stopping:
			return
		}
		if !ok {
			return
		}
	}
}

// The default CheckOrigin allows only pages of this host.
var upgrader = websocket.Upgrader{HandshakeTimeout: 5 * time.Second}

// socket sends the same as stream over a WebSocket. It reads only pings, pongs and the close.
func (s *shop) socket(w http.ResponseWriter, r *http.Request) {
	e, ok := s.event(w, r)
	if !ok {
		return
	}
	s.sockets.Add(1) // before the server forgets the connection
	defer s.sockets.Done()
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the upgrader has responded
	}
	now, changes := e.subscribe()
	defer e.unsubscribe(changes)

	gone := make(chan struct{})
	conn.SetReadLimit(1 << 10)
	heard := func(string) error { return conn.SetReadDeadline(time.Now().Add(2*heartbeat + writeTimeout)) }
	conn.SetPongHandler(heard)
	s.sockets.Go(func() {
		defer close(gone)
		_ = heard("")
		for {
			if _, _, err := conn.ReadMessage(); err != nil {
				return
			}
		}
	})
	defer func() {
		_ = conn.Close() // so that the reader returns
		<-gone
	}()

	type message struct {
		Kind string `json:"kind"` // seats or change
		change
	}
	write := func(m message) bool {
		_ = conn.SetWriteDeadline(time.Now().Add(writeTimeout))
		return conn.WriteJSON(m) == nil
	}
	if !write(message{"seats", now}) {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case c, open := <-changes:
			if !open || !write(message{"change", c}) {
				return
			}
		case <-beat.C:
			if conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) != nil {
				return
			}
		case <-gone:
			return
		case <-s.stopping:
			_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseGoingAway, "the shop is closing"), time.Now().Add(time.Second))
			return
		}
	}
}

func marshal(c change) []byte {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // strings and a number always marshal
	}
	return b
}
