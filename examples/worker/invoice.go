package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/anteroom/anteroom/bulk"
)

type order struct {
	Country string `json:"country"`
	Items   []struct {
		Cents int64 `json:"cents"`
		Count int64 `json:"count"`
	} `json:"items"`
}

type amount struct {
	Country string `json:"country"`
	Cents   int64  `json:"cents"`
}

// invoice adds up an order. It returns Permanent for an error that a retry cannot correct; other errors are retried with a
// backoff, and Busy means that the downstream refuses for now. A handler that calls other services passes ctx and
// job.IdempotencyKey, since a job may run more than once.
func invoice(_ context.Context, job *bulk.Job) ([]byte, error) {
	var o order
	if err := json.Unmarshal(job.Payload, &o); err != nil {
		return nil, bulk.Permanent("bad_order", err)
	}
	if len(o.Items) == 0 {
		return nil, bulk.Permanent("empty_order", errors.New("the order has no items"))
	}
	sum := amount{Country: o.Country}
	for _, i := range o.Items {
		sum.Cents += i.Cents * i.Count
	}
	return json.Marshal(sum)
}

// total is the revenue of a country.
type total struct {
	Invoices int64 `json:"invoices"`
	Cents    int64 `json:"cents"`
}

// revenue adds up the invoices of a group by country.
var revenue = bulk.MapReduce(
	func(o *bulk.Outcome) (a amount, ok bool, err error) {
		if o.Status != "succeeded" {
			return a, false, nil
		}
		err = json.Unmarshal(o.Result, &a)
		return a, true, err
	},
	func(all map[string]total, a amount) map[string]total {
		if all == nil {
			all = map[string]total{}
		}
		t := all[a.Country]
		all[a.Country] = total{t.Invoices + 1, t.Cents + a.Cents}
		return all
	})
