package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"
)

// fetch gets one answer, as wrk would ask for it.
func fetch(ctx context.Context, url, header, credential string) (body []byte, code int, room string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, 0, "", err
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set(header, credential)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, 0, "", err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		return nil, 0, "", fmt.Errorf("GET %s: %w", url, err)
	}
	return body, resp.StatusCode, resp.Header.Get("X-Waiting-Room"), nil
}
