package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/anteroom/anteroom/bulk/client"
)

// A file of jobs becomes a group, which is watched to its end; then what became of each job is read.
func Example() {
	c, err := client.New("http://127.0.0.1:8090", client.Options{Token: os.Getenv("BULKWORKER_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()

	group, err := c.CreateGroup(ctx, client.GroupSpec{ID: "spring-mail", Tenant: "acme", Type: "email", Priority: client.Low, FailureTolerance: "1%"})
	if err != nil {
		log.Fatal(err)
	}
	file, err := os.Open("jobs.ndjson")
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	sent, err := c.AddLines(ctx, group.ID, file, client.Upload{ID: "jobs.ndjson"})
	if err != nil {
		log.Fatal(err) // the same program once more goes on from sent.Lines
	}
	for _, r := range sent.Rejections {
		log.Printf("line %d: %s", r.Line, r.Reason)
	}
	if _, err := c.Seal(ctx, group.ID); err != nil {
		log.Fatal(err)
	}
	for g, err := range c.Watch(ctx, group.ID) {
		if err != nil {
			log.Fatal(err)
		}
		log.Printf("%s %d/%d, %.0f/s", g.Status, g.Done(), g.Total, g.Rate)
	}
	for o, err := range c.Results(ctx, group.ID) {
		if err != nil {
			log.Fatal(err)
		}
		if o.Status != "succeeded" {
			fmt.Println(o.ID, o.Status, o.Code, o.Error)
		}
	}
}

// Jobs can come from anywhere; no more than a chunk of them is held at a time.
func ExampleClient_AddJobs() {
	c, err := client.New("http://127.0.0.1:8090", client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	people := func(yield func(client.Job) bool) {
		for i := range 1_000_000 {
			payload, _ := json.Marshal(map[string]any{"person": i})
			if !yield(client.Job{ID: fmt.Sprint("person-", i), Payload: payload}) {
				return
			}
		}
	}
	sent, err := c.AddJobs(context.Background(), "spring-mail", people, client.Upload{ID: "people",
		OnChunk: func(u client.Uploaded) { log.Printf("%d jobs are in", u.Accepted) }})
	log.Print(sent.Accepted, err)
}

// A refusal has a code; an outage has outlasted the client's patience.
func ExampleProblem() {
	c, err := client.New("http://127.0.0.1:8090", client.Options{Patience: 10 * time.Second})
	if err != nil {
		log.Fatal(err)
	}
	_, err = c.Cancel(context.Background(), "spring-mail")
	if p, ok := errors.AsType[*client.Problem](err); ok && p.Code == "wrong_state" {
		log.Print("has ended already")
	} else if client.Passing(err) {
		log.Print("the bulk worker is away: ", err)
	}
}
