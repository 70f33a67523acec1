package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/anteroom/anteroom/bulk/client"
	"github.com/anteroom/anteroom/internal/redistest"
)

func TestMain(m *testing.M) { redistest.MainNoLeaks(m) }

// environment returns the environment of a worker on the test's store.
func environment(t *testing.T) map[string]string {
	return map[string]string{"ANTEROOM_STORE__URL": "unix://" + redistest.SharedSocket(t), "ANTEROOM_STORE__PREFIX": redistest.Prefix(t),
		"ANTEROOM_LISTEN": "127.0.0.1:0", "ANTEROOM_WORKER__COUNT": "4"}
}

func TestWorker(t *testing.T) {
	env := environment(t)
	o, err := fromEnvironment(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, l, o, slog.New(slog.DiscardHandler)) }()

	c, err := client.New("http://"+l.Addr().String(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var orders bytes.Buffer
	for i := range 100 {
		fmt.Fprintf(&orders, "{\"payload\":{\"country\":%q,\"items\":[{\"cents\":%d,\"count\":2},{\"cents\":500,\"count\":1}]}}\n", []string{"DE", "FR"}[i%2], i)
	}
	orders.WriteString("{\"payload\":{\"items\":[]}}\n{\"payload\":{\"items\":1}}\n")
	answer, err := c.Bulk(t.Context(), client.GroupSpec{ID: "orders", Tenant: "acme", Type: "invoice", FailureTolerance: "2",
		Aggregate: json.RawMessage(`{"op":"reduce","name":"revenue"}`)}, &orders)
	if err != nil || answer.Accepted != 102 {
		t.Fatalf("%+v, %v", answer, err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	g := &client.Group{}
	for deadline := time.Now().Add(time.Minute); !g.Status.Ended(); <-tick.C {
		if g, err = c.Group(t.Context(), "orders"); err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", g, err)
		}
	}
	result, err := c.Result(t.Context(), "orders")
	// Of each country 50: 2·(0+2+…+98) + 50·500, 2·(1+3+…+99) + 50·500.
	want := `{"op":"reduce","name":"revenue","value":{"DE":{"invoices":50,"cents":29900},"FR":{"invoices":50,"cents":30000}},` +
		`"succeeded":100,"failed":2,"dead":0,"cancelled":0,"errors":{"bad_order":1,"empty_order":1}}`
	if g.Status != client.Completed || err != nil || string(result) != want {
		t.Errorf("%s %s, %v\nwant %s", g.Status, result, err, want)
	}
	if _, err := c.CreateGroup(t.Context(), client.GroupSpec{Tenant: "acme", Type: "fax"}); err == nil || !strings.Contains(err.Error(), "type") {
		t.Errorf("a type that it does not know: %v", err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestEnvironmentThatCannotBe(t *testing.T) {
	for _, row := range []struct{ name, value, says string }{
		{"ANTEROOM_STORE__URL", "", "ANTEROOM_STORE__URL is empty"},
		{"ANTEROOM_STORE__URL", "http://127.0.0.1", "ANTEROOM_STORE__URL"},
		{"ANTEROOM_WORKER__COUNT", "many", `ANTEROOM_WORKER__COUNT "many"`},
	} {
		env := environment(t)
		env[row.name] = row.value
		_, err := fromEnvironment(func(name string) string { return env[name] })
		if err == nil || !strings.Contains(err.Error(), row.says) {
			t.Errorf("%s=%s: %v, want it to say %q", row.name, row.value, err, row.says)
		}
	}
}

// A worker without its API must not go on.
func TestAPIThatFails(t *testing.T) {
	env := environment(t)
	o, err := fromEnvironment(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	if err := run(t.Context(), l, o, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("it ends without an error")
	}
}
