package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
)

// Breakers returns the open breakers that the token may see.
func (c limits) Breakers(ctx context.Context) ([]Breaker, error) {
	return c.breakers(ctx, get("v1", "breakers"))
}

// LiftBreaker closes the breaker of a processor or, with a tenant, the breaker of that tenant's jobs. It returns the
// breakers that are still open. It needs the operators' token.
func (c limits) LiftBreaker(ctx context.Context, processor, tenant string) ([]Breaker, error) {
	k := call{method: http.MethodDelete, path: []string{"v1", "breakers"}, query: url.Values{"processor": {processor}}}
	if tenant != "" {
		k.query.Set("tenant", tenant)
	}
	return c.breakers(ctx, k)
}

func (c limits) breakers(ctx context.Context, k call) ([]Breaker, error) {
	var a bulktype.Breakers[time.Time]
	err := c.do(ctx, k, &a)
	return a.Breakers, err
}
