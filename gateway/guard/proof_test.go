package guard

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	altcha "github.com/altcha-org/altcha-lib-go"
)

var testProofs = NewProofs([]byte("a key that is only used in tests"))

// solved returns a challenge with its solution, as clients of ALTCHA put it.
func solved(t testing.TB, p *Proofs, expires int64, change func(map[string]any)) string {
	t.Helper()
	c := p.Challenge(1000, expires)
	found, err := altcha.SolveChallenge(c.Challenge, c.Salt, altcha.SHA256, int(c.MaxNumber), 0, nil)
	if err != nil || found == nil {
		t.Fatalf("%+v has no solution: %v", c, err)
	}
	members := map[string]any{"algorithm": c.Algorithm, "challenge": c.Challenge, "number": found.Number, "salt": c.Salt, "signature": c.Signature, "took": 12}
	if change != nil {
		change(members)
	}
	b, err := json.Marshal(members)
	if err != nil {
		t.Fatal(err)
	}
	return base64.StdEncoding.EncodeToString(b)
}

// What ALTCHA's own library solves, this verifies, and the other way round.
func TestProofs_HaveALTCHAFormat(t *testing.T) {
	now := time.Now().Unix()
	payload := solved(t, testProofs, now+60, nil)
	challenge, err := testProofs.Verify(payload, now)
	if err != nil || len(challenge) != 64 {
		t.Fatalf("%q, %v", challenge, err)
	}
	if again, err := testProofs.Verify(payload, now); again != challenge || err != nil {
		t.Errorf("once more: %q, %v", again, err)
	}
	if ok, err := altcha.VerifySolution(payload, string(testProofs.key), true); !ok || err != nil {
		t.Errorf("the library says %v, %v", ok, err)
	}
	theirs, err := altcha.CreateChallenge(altcha.ChallengeOptions{HMACKey: string(testProofs.key), MaxNumber: 1000, Expires: new(time.Now().Add(time.Minute))})
	if err != nil {
		t.Fatal(err)
	}
	found, err := altcha.SolveChallenge(theirs.Challenge, theirs.Salt, altcha.SHA256, 1000, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(altcha.Payload{Algorithm: theirs.Algorithm, Challenge: theirs.Challenge, Number: int64(found.Number), Salt: theirs.Salt, Signature: theirs.Signature})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := testProofs.Verify(base64.StdEncoding.EncodeToString(b), now); err != nil {
		t.Errorf("the library's challenge: %v", err)
	}
}

func TestVerify_RefusesInvalidProofs(t *testing.T) {
	now := time.Now().Unix()
	for name, change := range map[string]func(map[string]any){
		"another number":           func(m map[string]any) { m["number"] = m["number"].(int) + 1 },
		"a negative one":           func(m map[string]any) { m["number"] = -1 },
		"a fraction":               func(m map[string]any) { m["number"] = 1.5 },
		"another algorithm":        func(m map[string]any) { m["algorithm"] = "SHA-1" },
		"no algorithm":             func(m map[string]any) { delete(m, "algorithm") },
		"another challenge":        func(m map[string]any) { m["challenge"] = strings.Repeat("0", 64) },
		"its capitals":             func(m map[string]any) { m["challenge"] = strings.ToUpper(m["challenge"].(string)) },
		"its signature's capitals": func(m map[string]any) { m["signature"] = strings.ToUpper(m["signature"].(string)) },
		"another signature":        func(m map[string]any) { m["signature"] = strings.Repeat("0", 64) },
		"another key's signature": func(m map[string]any) {
			m["signature"] = NewProofs([]byte("another room's key")).sign(m["challenge"].(string))
		},
		"another time": func(m map[string]any) {
			m["salt"] = fmt.Sprintf("%s?expires=%d&", m["salt"].(string)[:24], now+3600)
		},
		"digits moved into the salt": func(m map[string]any) {
			number := fmt.Sprint(m["number"])
			if len(number) < 2 {
				m["number"] = -1
				return
			}
			m["salt"] = m["salt"].(string) + number[:1]
			var rest int
			fmt.Sscan(number[1:], &rest)
			m["number"] = rest
		},
	} {
		if _, err := testProofs.Verify(solved(t, testProofs, now+60, change), now); !errors.Is(err, ErrProof) {
			t.Errorf("%s: %v, want ErrProof", name, err)
		}
	}
	if _, err := testProofs.Verify(solved(t, testProofs, now-1, nil), now); !errors.Is(err, ErrExpired) {
		t.Errorf("a second late: %v, want ErrExpired", err)
	}
	if _, err := testProofs.Verify(solved(t, testProofs, now, nil), now); err != nil {
		t.Errorf("in its last second: %v", err)
	}
	for _, payload := range []string{"", "x", "e30=", "bnVsbA==", "W10=", strings.Repeat("A", ProofMost+4)} {
		if _, err := testProofs.Verify(payload, now); !errors.Is(err, ErrProof) {
			t.Errorf("%.20q: %v, want ErrProof", payload, err)
		}
	}
}

// Salt and number are hashed as one text, and the time of a challenge is in it: of all the ways to cut that text in two only the
// one that was given verifies, or the time could be moved (CVE-2025-68113).
func TestVerify_AcceptsOneSplitOfSaltAndNumber(t *testing.T) {
	now := time.Now().Unix()
	var given string
	solved(t, testProofs, now+60, func(m map[string]any) {
		text := fmt.Sprint(m["salt"], m["number"])
		for i := range len(text) + 1 {
			for _, number := range []string{text[i:], `"` + text[i:] + `"`, "0" + text[i:], text[i:] + ".0", text[i:] + "e0"} {
				b := fmt.Sprintf(`{"algorithm":"SHA-256","challenge":%q,"salt":%q,"signature":%q,"number":%s}`, m["challenge"], text[:i], m["signature"], number)
				if _, err := testProofs.Verify(base64.StdEncoding.EncodeToString([]byte(b)), now); err == nil {
					given += fmt.Sprint(text[:i], "|", number)
				} else if !errors.Is(err, ErrProof) {
					t.Errorf("%s: %v", b, err)
				}
			}
		}
		if want := fmt.Sprint(m["salt"], "|", m["number"]); given != want {
			t.Errorf("these verify: %s; want %s", given, want)
		}
	})
	// A salt of ours ends in a mark. One without it is not, whoever has signed it.
	for salt, want := range map[string]error{"ab?expires=9999999999&": nil, "ab?expires=9999999999": ErrProof, "ab&": ErrProof, "ab?expires=&": ErrProof} {
		sum := sha256.Sum256([]byte(salt + "7"))
		challenge := hex.EncodeToString(sum[:])
		b := fmt.Appendf(nil, `{"algorithm":"SHA-256","challenge":%q,"salt":%q,"signature":%q,"number":7}`, challenge, salt, testProofs.sign(challenge))
		if _, err := testProofs.Verify(base64.StdEncoding.EncodeToString(b), now); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", salt, err, want)
		}
	}
}

// search.js computes a single block, and tries numbers in fours behind eleven words.
func TestChallenge_FitsIntoOneBlock(t *testing.T) {
	for _, expires := range []int64{1_000_000_000, 9_999_999_999} {
		c := testProofs.Challenge(100_000_000, expires)
		if n := len(c.Salt); n != 44 || n+len("100000000") > 55 {
			t.Errorf("%q has %d bytes, want 44", c.Salt, n)
		}
	}
}

func FuzzVerify(f *testing.F) {
	now := int64(1_800_000_000)
	f.Add(solved(f, testProofs, now+60, nil))
	f.Add(solved(f, testProofs, now-60, nil))
	f.Add("e30=")
	f.Add(base64.StdEncoding.EncodeToString([]byte(`{"algorithm":"SHA-256","challenge":"","number":0,"salt":"?expires=&","signature":""}`)))
	f.Fuzz(func(t *testing.T, payload string) {
		challenge, err := testProofs.Verify(payload, now)
		if err != nil {
			if challenge != "" {
				t.Errorf("%q with %v", challenge, err)
			}
			return
		}
		text, _ := base64.StdEncoding.DecodeString(payload)
		var m struct {
			Salt   string
			Number int64
		}
		if json.Unmarshal(text, &m) != nil {
			t.Fatalf("%q verifies", payload)
		}
		if sum := sha256.Sum256(fmt.Append([]byte(m.Salt), m.Number)); hex.EncodeToString(sum[:]) != challenge {
			t.Errorf("%s is not solved by %d", challenge, m.Number)
		}
	})
}

func TestEffort_FollowsJoinRate(t *testing.T) {
	e := Effort{Number: 1000, Most: 6000, JoinRate: 50}
	for rate, want := range map[float64]int64{0: 1000, 50: 1000, 51: 2000, 100: 2000, 101: 4000, 200: 4000, 201: 6000, 1e6: 6000} {
		if got := e.At(rate); got != want {
			t.Errorf("at %g joins a second: %d, want %d", rate, got, want)
		}
	}
}

func TestRate_CoversLastTenSeconds(t *testing.T) {
	var r Rate
	second := int64(1_000_000)
	for _, row := range []struct {
		at, total int64
		want      float64
	}{
		{0, 500, 0}, {second, 600, 100}, {2 * second, 600, 50}, {10 * second, 1500, 100}, {12 * second, 1500, 90},
		{100 * second, 1500, 0}, // nobody looked meanwhile
		{101 * second, 40, 0},   // another store
		{102 * second, 80, 40},
	} {
		if got := r.Observe(row.at, row.total); got != row.want {
			t.Errorf("at %d s: %g a second, want %g", row.at/second, got, row.want)
		}
	}
}

func TestScripts_NamesDependOnContent(t *testing.T) {
	s := NewScripts(map[string]map[string]string{"en": {"working": "</script>"}, "ko": {"working": "x"}})
	name := s.Name("en")
	script, forever, ok := s.Find(name)
	if !ok || !forever || !strings.Contains(string(script), "function search") || strings.Contains(string(script), "</script") {
		t.Errorf("%s: %v %v\n%s", name, forever, ok, script)
	}
	if _, forever, ok := s.Find("pow-en-000000000000.js"); !ok || forever {
		t.Errorf("of another version: %v %v", forever, ok)
	}
	for _, no := range []string{"pow-xx-000000000000.js", "pow-en.js", "pow-.js", "en"} {
		if _, _, ok := s.Find(no); ok {
			t.Errorf("there is a %s", no)
		}
	}
}
