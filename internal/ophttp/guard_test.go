package ophttp

import (
	"errors"
	"net/http"
	"testing"
)

func TestBearer_TwoAuthorizationHeadersAreRefused(t *testing.T) {
	r, err := http.NewRequest("GET", "/", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header["Authorization"] = []string{"Bearer one", "Bearer other"}
	if _, err := bearer(r); !errors.Is(err, errTwoHeaders) {
		t.Errorf("two headers: %v", err)
	}
}
