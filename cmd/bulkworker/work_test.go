package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/internal/redistest"
)

// Workers with a token of their own lease the jobs of types of kind pull, beside the processors of the process: with the retries of the
// configuration and its metrics. A type can be added by a reload. SIGTERM answers those that wait.
func TestServe_WorkersPull(t *testing.T) {
	server := redistest.Server(t)
	config := fmt.Sprintf(`
store: {url: %q}
admin: {token: operators-token-1}
worker_tokens: [{name: thumbs, types: [thumb, video], token_file: %q}]
processors:
  webhook: {url: "http://127.0.0.1:9/"}
  thumb: {kind: pull, retry: {max: 0}}
`, server.URL(), secretFile(t, "workers-token-0123456789"))
	p := start(t, config)
	p.ready(http.StatusOK)
	admin, worker := []string{"Authorization", "Bearer operators-token-1"}, []string{"Authorization", "Bearer workers-token-0123456789"}
	status, answer := p.do("POST", "/v1/bulk?id=g&tenant=acme&type=thumb", "{\"id\":\"a\",\"payload\":1}\n{\"id\":\"b\",\"payload\":2}\n{\"type\":\"video\",\"payload\":3}\n", admin...)
	if status != http.StatusCreated || !strings.Contains(answer, `"accepted":2`) || !strings.Contains(answer, "has no handler here") {
		t.Fatal(status, answer)
	}
	if status, answer := p.do("POST", "/v1/work/lease", `{"types":["webhook"]}`, worker...); status != http.StatusForbidden {
		t.Error(status, answer)
	}
	lease := func(body string) (v bulktype.Leased[string]) {
		t.Helper()
		status, answer := p.do("POST", "/v1/work/lease", body, worker...)
		if err := json.Unmarshal([]byte(answer), &v); err != nil || status != http.StatusOK {
			t.Fatal(status, answer, err)
		}
		return v
	}
	v := lease(`{"worker":"thumbs-1","types":["thumb","video"],"max":5,"wait":30}`)
	if len(v.Jobs) != 2 {
		t.Fatalf("%+v", v)
	}
	body := fmt.Sprintf(`{"jobs":[{"lease":%q,"result":{"w":1}},{"lease":%q,"verdict":"retry","code":"no_disk"}]}`, v.Jobs[0].Lease, v.Jobs[1].Lease)
	if status, answer := p.do("POST", "/v1/work/ack", body, worker...); status != http.StatusOK || !strings.Contains(answer, `{"id":"a","state":"done"},{"id":"b","state":"dead"}`) {
		t.Error(status, answer)
	}
	if _, answer := p.do("GET", "/metrics", "", admin...); !strings.Contains(answer, `bulk_action_job_runs_total{type="thumb",verdict="dead"} 1`) ||
		!strings.Contains(answer, "bulk_action_leases_waiting_limit 4096") {
		t.Error("metrics")
	}
	eventually(t, func() error {
		if _, answer := p.do("GET", "/v1/workers", "", admin...); !strings.Contains(answer, `"id":"thumbs-1","host":"127.0.0.1","pulls":true`) {
			return errors.New(answer)
		}
		return nil
	})

	p.write(config + "  video: {kind: pull}\n")
	p.signal(syscall.SIGHUP)
	p.said("configuration reloaded")
	status, answer = p.do("POST", "/v1/bulk?id=h&tenant=acme&type=video", `{"payload":3}`, admin...)
	if status != http.StatusCreated {
		t.Fatal(status, answer)
	}
	if v := lease(`{"types":["video"],"wait":30}`); len(v.Jobs) != 1 {
		t.Errorf("%+v", v)
	} else if status, answer := p.do("POST", "/v1/work/ack", fmt.Sprintf(`{"jobs":[{"lease":%q}]}`, v.Jobs[0].Lease), worker...); status != http.StatusOK {
		t.Error(status, answer)
	}
	waiting := make(chan bulktype.Leased[string])
	go func() { waiting <- lease(`{"types":["video"],"wait":60}`) }()
	eventually(t, func() error {
		if _, answer := p.do("GET", "/metrics", "", admin...); !strings.Contains(answer, "bulk_action_leases_waiting 1\n") {
			return errors.New("nobody waits")
		}
		return nil
	})
	p.signal(syscall.SIGTERM)
	if v := <-waiting; len(v.Jobs) != 0 {
		t.Errorf("%+v", v)
	}
	p.end()
}
