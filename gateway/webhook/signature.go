package webhook

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Header fields of a request.
const (
	headerID        = "Webhook-Id"
	headerTimestamp = "Webhook-Timestamp"
	headerSignature = "Webhook-Signature"
)

// secretPrefix begins the text of a secret.
const secretPrefix = "whsec_"

// Secret is the key of an endpoint.
type Secret []byte

// ParseSecret parses whsec_ and the base64 of 24 to 64 bytes.
func ParseSecret(text string) (Secret, error) {
	encoded, ok := strings.CutPrefix(text, secretPrefix)
	if !ok {
		return nil, errors.New("does not begin with " + secretPrefix)
	}
	key, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil {
		return nil, errors.New("is not base64 after " + secretPrefix)
	}
	if len(key) < 24 || len(key) > 64 {
		return nil, fmt.Errorf("has %d bytes; a secret has 24 to 64", len(key))
	}
	return key, nil
}

// ParseSecrets parses one secret a line. Blank lines and lines that begin with # are ignored.
func ParseSecrets(text string) ([]Secret, error) {
	var secrets []Secret
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		s, err := ParseSecret(line)
		if err != nil {
			return nil, fmt.Errorf("line %d %w; make one with: echo whsec_$(openssl rand -base64 32)", n, err)
		}
		secrets = append(secrets, s)
	}
	switch {
	case len(secrets) == 0:
		return nil, errors.New("holds no secret; make one with: echo whsec_$(openssl rand -base64 32)")
	case len(secrets) > mostSecrets:
		return nil, fmt.Errorf("holds %d secrets; at most %d sign at once", len(secrets), mostSecrets)
	}
	return secrets, nil
}

// mostSecrets bounds the signatures of one request.
const mostSecrets = 5

// sign sets the header fields of an event that is sent now.
func sign(h http.Header, secrets []Secret, id string, now time.Time, body []byte) {
	at := strconv.FormatInt(now.Unix(), 10)
	signatures := make([]string, len(secrets))
	for i, s := range secrets {
		mac := hmac.New(sha256.New, s)
		mac.Write([]byte(id + "." + at + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	h.Set(headerID, id)
	h.Set(headerTimestamp, at)
	h.Set(headerSignature, strings.Join(signatures, " "))
}
