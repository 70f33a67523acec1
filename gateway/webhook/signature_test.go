package webhook

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// text returns a secret as files hold it.
func (s Secret) text() string { return secretPrefix + base64.StdEncoding.EncodeToString(s) }

// The example of the specification's libraries.
func TestSign_MatchesPublishedVector(t *testing.T) {
	secret, err := ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{}
	sign(h, []Secret{secret}, "msg_p5jXN8AQM9LWM0D4loKWxJek", time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if got, want := h.Get("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// Every secret of the file signs, so a receiver that knows any one of them verifies the request.
func TestSign_VerifiedByNpmLibrary(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is missing, so the npm library does not verify the signatures; apt-get install nodejs")
	}
	first, second, other := Secret(strings.Repeat("a", 24)), Secret(strings.Repeat("b", 64)), Secret(strings.Repeat("c", 32))
	e := event{kind: RoomChanged, room: "sale", at: time.Now(), data: map[string]any{"after": map[string]any{"message": "é <b> \u2028"}}}
	h := http.Header{}
	sign(h, []Secret{first, second}, e.id(), time.Now(), []byte(e.body()))
	old := http.Header{}
	sign(old, []Secret{first}, e.id(), time.Now().Add(-time.Hour), []byte(e.body()))
	type request struct {
		Secret  string            `json:"secret"`
		Body    string            `json:"body"`
		Headers map[string]string `json:"headers"`
	}
	of := func(s Secret, body string, h http.Header) request {
		headers := map[string]string{}
		for name := range h {
			headers[strings.ToLower(name)] = h.Get(name)
		}
		return request{s.text(), body, headers}
	}
	in, _ := json.Marshal([]request{
		of(first, e.body(), h), of(second, e.body(), h), of(other, e.body(), h), of(first, e.body()+" ", h), of(first, e.body(), old),
	})
	cmd := exec.CommandContext(t.Context(), node, "testdata/verify.js")
	cmd.Env = []string{"NODE_PATH=testdata/npm"}
	cmd.Stdin = bytes.NewReader(in)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "ok room.changed\nok room.changed\nrefused No matching signature found\nrefused No matching signature found\nrefused Message timestamp too old\n"
	if string(out) != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
}

func TestParseSecrets_NamesWhatIsWrong(t *testing.T) {
	good, other := Secret(strings.Repeat("a", 24)).text(), Secret(strings.Repeat("b", 64)).text()
	for _, row := range []struct {
		text string
		n    int
		want string
	}{
		{good, 1, ""},
		{"# the new one\n" + good + "\r\n\n  " + other + "  \n", 2, ""},
		{"", 0, "holds no secret"},
		{"# none\n", 0, "holds no secret"},
		{"hello\n", 0, "line 1 does not begin with whsec_"},
		{good + "\nwhsec_!\n", 0, "line 2 is not base64 after whsec_"},
		{Secret("short").text(), 0, "line 1 has 5 bytes; a secret has 24 to 64"},
		{Secret(strings.Repeat("a", 65)).text(), 0, "line 1 has 65 bytes"},
		{strings.Repeat(good+"\n", 6), 0, "holds 6 secrets; at most 5 sign at once"},
	} {
		got, err := ParseSecrets(row.text)
		switch {
		case row.want == "" && (err != nil || len(got) != row.n):
			t.Errorf("%q: %d, %v", row.text, len(got), err)
		case row.want != "" && (err == nil || !strings.Contains(err.Error(), row.want)):
			t.Errorf("%q: %v, want %s", row.text, err, row.want)
		}
	}
}

func FuzzParseSecrets(f *testing.F) {
	f.Add("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n# x\n")
	f.Add("whsec_\x00")
	f.Fuzz(func(t *testing.T, text string) {
		secrets, err := ParseSecrets(text)
		if (err == nil) != (len(secrets) > 0) {
			t.Fatalf("%d secrets, %v", len(secrets), err)
		}
		for _, s := range secrets {
			if again, err := ParseSecret(s.text()); err != nil || !bytes.Equal(again, s) || !strings.Contains(text, s.text()) {
				t.Fatalf("%q is read as %x, %v", s.text(), again, err)
			}
		}
	})
}
