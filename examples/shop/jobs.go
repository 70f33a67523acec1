package main

import (
	"encoding/json"
	"net/http"
)

// jobs receives jobs from the bulk worker's webhook handler: messages to customers, as {"to": "…", "text": "…"}. It sends
// nothing and responds with success; a job without "to" fails permanently.
func (s *shop) jobs(w http.ResponseWriter, r *http.Request) {
	var message struct {
		To   string `json:"to"`
		Text string `json:"text"`
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&message); err != nil || message.To == "" {
		writeJSON(w, http.StatusUnprocessableEntity, map[string]string{"error": `a job is {"to": "somebody", "text": "…"}`})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"sent_to": message.To, "job": r.Header.Get("X-Bulk-Job")})
}
