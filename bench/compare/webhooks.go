package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anteroom/anteroom/bench/rig"
)

// received counts the events that the webhook has received.
var received atomic.Int64

// webhook starts the receiver of a webhook and returns the settings that send to it.
func (b *bench) webhook() string {
	at := b.Serve(func(_ http.ResponseWriter, r *http.Request) {
		if text, err := io.ReadAll(r.Body); err == nil && json.Valid(text) {
			received.Add(1)
		}
	})
	secret := b.File("webhook.secret", "whsec_YWFhYWFhYWFhYWFhYWFhYWFhYWFhYWFh\n")
	return fmt.Sprintf("webhooks: [{name: crm, url: \"http://%s\", secret_file: %q, allow_private: true}]\n", at, secret)
}

// changes changes a room that no request is for twice a second, so that each turn of the webhooks has an event to send, until stop is
// called. stop ends the run if no event has arrived.
func (b *bench) changes() (stop func()) {
	done := make(chan struct{})
	var over sync.WaitGroup
	over.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
			}
			_, _, err := rig.Request(b, 10*time.Second, http.MethodPatch, "http://"+b.gateway.Admin+"/admin/v1/rooms/slow", fmt.Appendf(nil, `{"message":"event %d"}`, n), "Content-Type", "application/json")
			if err != nil {
				rig.Say("the change of the room slow: %v", err)
			}
		}
	})
	return func() {
		close(done)
		over.Wait()
		rig.Require(received.Load() > 0, "no event has reached the webhook")
		rig.Say("%d events have reached the webhook", received.Load())
	}
}
