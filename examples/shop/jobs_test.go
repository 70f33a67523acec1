package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestJobsOfTheBulkWorker(t *testing.T) {
	_, srv := open(t)
	for _, row := range []struct {
		body   string
		status int
		answer string
	}{
		{`{"to":"ana@example.com","text":"20 % off"}`, 200, `"sent_to":"ana@example.com"`},
		{`{"text":"to nobody"}`, 422, `"error"`},
		{`not json`, 422, `"error"`},
		{`{"to":"x","text":"` + strings.Repeat("a", 70<<10) + `"}`, 422, `"error"`},
	} {
		res, err := http.Post(srv.URL+"/jobs", "application/json", strings.NewReader(row.body))
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != row.status || !strings.Contains(string(text), row.answer) {
			t.Errorf("%.40s: %d %s", row.body, res.StatusCode, text)
		}
	}
}
