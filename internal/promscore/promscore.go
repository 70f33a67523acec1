// Package promscore asks a Prometheus server how healthy an origin is.
package promscore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Query is a PromQL query whose result is a score, 0 to 1.
type Query struct {
	api   v1.API
	query string
	shown string // the server, without what is secret in its address
}

// timeout bounds an evaluation at the server; whoever asks has a deadline of their own.
const timeout = 3 * time.Second

// New makes the query; it asks nothing yet. User and password in the address go as basic authentication.
func New(address, query string) (*Query, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, errors.New("prometheus: the address is no URL") // the error would show all of it
	}
	client, err := api.NewClient(api.Config{Address: address, Client: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second},
		Timeout:   2 * timeout,
	}})
	if err != nil {
		return nil, fmt.Errorf("prometheus %s: %w", u.Redacted(), err)
	}
	return &Query{v1.NewAPI(client), query, u.Redacted()}, nil
}

// Score is the query's result: a scalar, or a vector of one element. Anything else is an error.
func (q *Query) Score(ctx context.Context) (float64, error) {
	v, _, _, err := q.api.Query(ctx, q.query, time.Time{}, v1.WithTimeout(timeout))
	if err != nil {
		if problem, ok := errors.AsType[*url.Error](err); ok {
			err = problem.Err // without the address
		}
		return 0, fmt.Errorf("prometheus %s: %w", q.shown, err)
	}
	switch v := v.(type) {
	case *model.Scalar:
		return float64(v.Value), nil
	case model.Vector:
		if len(v) == 1 {
			return float64(v[0].Value), nil
		}
		return 0, fmt.Errorf("prometheus %s: %q has %d results; want one, as avg(…) or scalar(…) gives", q.shown, q.query, len(v))
	}
	return 0, fmt.Errorf("prometheus %s: %q gives a %s; want a number", q.shown, q.query, v.Type())
}
