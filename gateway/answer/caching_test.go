package answer

import (
	"testing"

	"github.com/valyala/fasthttp"
)

func TestIsPublic_ReadsCacheControl(t *testing.T) {
	for control, want := range map[string]bool{
		"": false, "public": true, "public, max-age=60": true, "max-age=60": true, "max-age=0": false, "s-maxage=1": true,
		"private, max-age=60": false, "no-store": false, "Public , Private": false, "no-cache": false,
	} {
		var h fasthttp.ResponseHeader
		if control != "" {
			h.Set("Cache-Control", control)
		}
		if got := IsPublic(&h); got != want {
			t.Errorf("%q: %v", control, got)
		}
	}
}

func TestIsPublic_ReadsFieldsOfSingleCaches(t *testing.T) {
	for _, row := range []struct {
		name, value string
		want        bool
	}{
		{"CDN-Cache-Control", "max-age=600", true}, {"CDN-Cache-Control", "no-store", false}, {"Cloudflare-CDN-Cache-Control", "public", true},
		{"Surrogate-Control", "max-age=1, content=\"ESI/1.0\"", true}, {"X-Accel-Expires", "600", true}, {"X-Accel-Expires", "0", false},
	} {
		var h fasthttp.ResponseHeader
		h.Set("Cache-Control", "private")
		h.Set(row.name, row.value)
		if got := IsPublic(&h); got != row.want {
			t.Errorf("%s: %s: %v", row.name, row.value, got)
		}
	}
}
