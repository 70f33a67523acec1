package main

import (
	"net/http"
	"time"
)

// patience is how long a request waits for its turn before it is refused.
const patience = 10 * time.Second

// slow makes a handler as slow as a shop with a database: each request takes delay, at most capacity of them at a time (0: any
// number). The others wait for their turn and receive 503 after patience.
func slow(delay time.Duration, capacity int, next http.Handler) http.Handler {
	var slots chan struct{}
	if capacity > 0 {
		slots = make(chan struct{}, capacity)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if slots != nil {
			timer := time.NewTimer(patience)
			defer timer.Stop()
			select {
			case slots <- struct{}{}:
				defer func() { <-slots }()
			case <-timer.C:
				w.Header().Set("Retry-After", "5")
				http.Error(w, "The shop is overwhelmed. Please try again.", http.StatusServiceUnavailable)
				return
			case <-r.Context().Done():
				return
			}
		}
		if delay > 0 {
			timer := time.NewTimer(delay)
			defer timer.Stop()
			select {
			case <-timer.C:
			case <-r.Context().Done():
				return
			}
		}
		next.ServeHTTP(w, r)
	})
}
