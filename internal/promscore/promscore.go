// Package promscore queries a Prometheus server for the health of an origin.
package promscore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Query is a PromQL query whose result is a score, 0 to 1.
type Query struct {
	client *http.Client
	url    string
	query  string
	shown  string // the server, without what is secret in its address
}

const (
	timeout   = 3 * time.Second // of an evaluation at the server; callers have a deadline of their own
	sizeLimit = 1 << 20         // bytes of a response
)

// New returns the query and sends nothing yet. User and password in the address are sent as basic authentication.
func New(address, query string) (*Query, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("prometheus: the address is not a URL") // the error would show all of it
	}
	return &Query{
		client: &http.Client{
			Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second},
			Timeout:   2 * timeout,
		},
		url: u.JoinPath("api/v1/query").String(), query: query, shown: u.Redacted(),
	}, nil
}

// Score returns the query's result: a scalar, or a vector of one element. Any other result is an error.
func (q *Query) Score(ctx context.Context) (float64, error) {
	score, err := q.ask(ctx)
	if problem, ok := errors.AsType[*url.Error](err); ok {
		err = problem.Err // without the address
	}
	if err != nil {
		return 0, fmt.Errorf("prometheus %s: %w", q.shown, err)
	}
	return score, nil
}

func (q *Query) ask(ctx context.Context) (float64, error) {
	form := url.Values{"query": {q.query}, "timeout": {timeout.String()}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, q.url, strings.NewReader(form.Encode()))
	if err != nil {
		return 0, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	resp, err := q.client.Do(r)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var reply struct {
		Status, Error string
		Data          struct {
			ResultType string
			Result     json.RawMessage
		}
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, sizeLimit)).Decode(&reply); err != nil {
		return 0, fmt.Errorf("the response with status %d is no JSON of the Prometheus API", resp.StatusCode)
	}
	if reply.Status != "success" {
		return 0, fmt.Errorf("status %d: %s", resp.StatusCode, reply.Error)
	}
	var at sample
	switch reply.Data.ResultType {
	case "scalar":
		err = json.Unmarshal(reply.Data.Result, &at)
	case "vector":
		var all []struct{ Value sample }
		if err = json.Unmarshal(reply.Data.Result, &all); err == nil && len(all) != 1 {
			return 0, fmt.Errorf("%q has %d results; use a query with one result, such as avg(…) or scalar(…)", q.query, len(all))
		} else if err == nil {
			at = all[0].Value
		}
	default:
		return 0, fmt.Errorf("%q returns a %s; use a query whose result is a number", q.query, reply.Data.ResultType)
	}
	if err != nil {
		return 0, err
	}
	text, _ := at[1].(string) // no number is an error of ParseFloat
	return strconv.ParseFloat(text, 64)
}

// sample is a time and a value; the value is text, so that it can be NaN.
type sample [2]any
