package outbound

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The example of docs/handlers.md, which a receiver in another language may check itself against.
const (
	exampleSecret    = "0123456789abcdef0123456789abcdef"
	exampleBody      = `{"to":"ann","n":1}`
	exampleSignature = "t=1767323045,v1=dd9f90037899f090f0873c90e616031d67b271e4b0414aea8a5295b5b3fb0df9"
)

var exampleTime = time.Unix(1767323045, 0)

func TestSign_MatchesExample(t *testing.T) {
	if got := Sign([]byte(exampleSecret), exampleTime.Add(999*time.Millisecond), []byte(exampleBody)); got != exampleSignature {
		t.Fatalf("Sign = %s\nwant   %s", got, exampleSignature)
	}
}

func TestVerify_ChecksSignatureAndAge(t *testing.T) {
	digest := strings.TrimPrefix(exampleSignature, "t=1767323045,v1=")
	for name, c := range map[string]struct {
		secret, header, body string
		after                time.Duration
		want                 error
	}{
		"good":                       {exampleSecret, exampleSignature, exampleBody, 0, nil},
		"five minutes late":          {exampleSecret, exampleSignature, exampleBody, 5 * time.Minute, nil},
		"later":                      {exampleSecret, exampleSignature, exampleBody, 5*time.Minute + 1, ErrStale},
		"five minutes early":         {exampleSecret, exampleSignature, exampleBody, -5 * time.Minute, nil},
		"earlier":                    {exampleSecret, exampleSignature, exampleBody, -5*time.Minute - 1, ErrStale},
		"another secret":             {exampleSecret + "x", exampleSignature, exampleBody, 0, ErrMismatch},
		"another body":               {exampleSecret, exampleSignature, exampleBody + " ", 0, ErrMismatch},
		"a later time put in":        {exampleSecret, "t=1767323046,v1=" + digest, exampleBody, 0, ErrMismatch},
		"a stale one, forged":        {exampleSecret, "t=1,v1=" + digest, exampleBody, 0, ErrMismatch},
		"none":                       {exampleSecret, "", exampleBody, 0, ErrMalformed},
		"no digest":                  {exampleSecret, "t=1767323045", exampleBody, 0, ErrMalformed},
		"no time":                    {exampleSecret, "v1=" + digest, exampleBody, 0, ErrMalformed},
		"the other way round":        {exampleSecret, "v1=" + digest + ",t=1767323045", exampleBody, 0, ErrMalformed},
		"a blank":                    {exampleSecret, "t=1767323045, v1=" + digest, exampleBody, 0, ErrMalformed},
		"upper case":                 {exampleSecret, "t=1767323045,v1=" + strings.ToUpper(digest), exampleBody, 0, ErrMalformed},
		"a zero in front":            {exampleSecret, "t=01767323045,v1=" + digest, exampleBody, 0, ErrMalformed},
		"a sign":                     {exampleSecret, "t=+1767323045,v1=" + digest, exampleBody, 0, ErrMalformed},
		"a negative time":            {exampleSecret, "t=-1767323045,v1=" + digest, exampleBody, 0, ErrMalformed},
		"a fraction":                 {exampleSecret, "t=1767323045.0,v1=" + digest, exampleBody, 0, ErrMalformed},
		"a time that overflows":      {exampleSecret, "t=99999999999999999999,v1=" + digest, exampleBody, 0, ErrMalformed},
		"a short digest":             {exampleSecret, exampleSignature[:len(exampleSignature)-2], exampleBody, 0, ErrMalformed},
		"a long digest":              {exampleSecret, exampleSignature + "00", exampleBody, 0, ErrMalformed},
		"another version":            {exampleSecret, "t=1767323045,v0=" + digest, exampleBody, 0, ErrMalformed},
		"something after the digest": {exampleSecret, exampleSignature + ",v1=" + digest, exampleBody, 0, ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Verify([]byte(c.secret), c.header, exampleTime.Add(c.after), []byte(c.body)); !errors.Is(err, c.want) {
				t.Errorf("Verify = %v, want %v", err, c.want)
			}
		})
	}
}

// A signed body verifies; with any byte changed it does not.
func TestVerify_AcceptsOnlyWhatWasSigned(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		secret := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "secret")
		body := rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "body")
		now := time.Unix(rapid.Int64Range(0, 99_999_999_999).Draw(t, "now"), 0)
		header := Sign(secret, now, body)
		if err := Verify(secret, header, now, body); err != nil {
			t.Fatalf("%s: %v", header, err)
		}
		i, by := rapid.IntRange(0, len(header)-1).Draw(t, "where"), rapid.ByteRange(1, 255).Draw(t, "by")
		forged := []byte(header)
		forged[i] ^= by
		if Verify(secret, string(forged), now, body) == nil {
			t.Fatalf("%q passes for %q", forged, header)
		}
		i = rapid.IntRange(0, len(body)-1).Draw(t, "where in the body")
		body[i] ^= by
		if err := Verify(secret, header, now, body); !errors.Is(err, ErrMismatch) {
			t.Fatalf("a changed body: %v", err)
		}
	})
}

// Every accepted header is one that Sign could have written.
func FuzzParseSignature(f *testing.F) {
	for _, seed := range []string{exampleSignature, "", "t=,v1=", "t=1,v1=" + strings.Repeat("0", 64), "t=-1,v1=" + strings.Repeat("f", 64),
		"t=00,v1=" + strings.Repeat("a", 64), "t=1,v1=" + strings.Repeat("A", 64), "t=1,v1=\x00", ",", "t=1,,v1=", "t=99999999999,v1=" + strings.Repeat("9", 64)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		at, mac, err := parseSignature(header)
		if err != nil {
			if !errors.Is(err, ErrMalformed) || at != 0 || mac != nil {
				t.Fatalf("%q: %d, %x, %v", header, at, mac, err)
			}
			return
		}
		if again := format(at, mac); again != header {
			t.Fatalf("%q was read as %q", header, again)
		}
	})
}

// The documentation has the example that is tested here.
func TestSign_ExampleIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/handlers.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"X-Bulk-Signature: " + exampleSignature + "\n\n" + exampleBody + "\n", "1767323045." + exampleBody + "'", exampleSecret} {
		if !strings.Contains(string(b), part) {
			t.Errorf("docs/handlers.md lacks %q", part)
		}
	}
}
