package push

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
)

const (
	// providerTokenLife is how long a provider token is used. Apple accepts one for an hour.
	providerTokenLife = 40 * time.Minute
	// providerTokenLeast is the age below which Apple may refuse a new token as too many.
	providerTokenLeast = 20 * time.Minute
	// maxAPNs and maxVoIP are the most bytes of a notification.
	maxAPNs, maxVoIP = 4096, 5120
)

// APNs are processors.<name>.apns of the configuration.
type APNs struct {
	KeyFile  string // the .p8 file of an authentication key; "": not configured
	KeyID    string
	TeamID   string
	Topic    string // the app's bundle id, for notifications without a topic
	Endpoint string // "": https://api.push.apple.com
}

// apns sends to Apple devices with a provider token that it signs.
type apns struct {
	url, host, topic string
	client           *http.Client
	key              *ecdsa.PrivateKey
	keyID, teamID    string
	now              func() time.Time

	mu    sync.Mutex
	token string
	made  time.Time
}

func newAPNs(o Options) (*apns, error) {
	c := o.APNs
	for _, f := range []struct{ name, value, what string }{
		{"key_id", c.KeyID, "the id of the key, which its file name has"},
		{"team_id", c.TeamID, "the id of the developer team"},
		{"topic", c.Topic, "the bundle id of the app"},
	} {
		if f.value == "" || strings.ContainsAny(f.value, " \t\r\n") {
			return nil, fmt.Errorf("%s is %q; use %s", f.name, f.value, f.what)
		}
	}
	raw, err := os.ReadFile(c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("key_file: %w", err)
	}
	key, err := signingKey(raw)
	if err != nil {
		return nil, fmt.Errorf("key_file: %s: %w", c.KeyFile, err)
	}
	endpoint := cmp.Or(c.Endpoint, "https://api.push.apple.com")
	u, err := outbound.ParseURL(endpoint)
	if err == nil && u.Scheme != "https" {
		err = fmt.Errorf("%q is not https; Apple's service needs HTTP/2", endpoint)
	}
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	return &apns{
		url: strings.TrimSuffix(u.String(), "/") + "/3/device/", host: u.Host, topic: c.Topic,
		client: outbound.NewClient(outbound.Options{MaxPerHost: o.MaxPerHost, HTTP2: true, TLS: o.TLS}),
		key:    key, keyID: c.KeyID, teamID: c.TeamID, now: time.Now,
	}, nil
}

func signingKey(raw []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("not PEM; use the .p8 file of an authentication key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("not a PKCS #8 key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("not a P-256 key")
	}
	return key, nil
}

// provider returns the provider token. refused is one that Apple no longer accepts.
func (a *apns) provider(refused string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	age := a.now().Sub(a.made)
	fresh := age >= 0 && age < providerTokenLife
	if a.token != "" && fresh && (a.token != refused || age < providerTokenLeast) {
		return a.token, nil
	}
	now := a.now()
	t := jwt.NewWithClaims(jwt.SigningMethodES256, jwt.MapClaims{"iss": a.teamID, "iat": now.Unix()})
	t.Header["kid"] = a.keyID
	signed, err := t.SignedString(a.key)
	if err != nil {
		return "", bulk.Fail("apns_token", err)
	}
	a.token, a.made = signed, now
	return signed, nil
}

// device is a notification for an Apple device.
type device struct {
	Token      string          `json:"token"`
	Payload    json.RawMessage `json:"payload"`
	Topic      string          `json:"topic"`
	PushType   string          `json:"push_type"`
	Priority   int             `json:"priority"`
	Expiration *int64          `json:"expiration"` // seconds since 1970; 0: once
	CollapseID string          `json:"collapse_id"`
}

var pushTypes = map[string]bool{
	"alert": true, "background": true, "location": true, "voip": true, "complication": true, "fileprovider": true, "mdm": true,
	"liveactivity": true, "pushtotalk": true, "widgets": true, "controls": true,
}

func (d *device) check() error {
	if _, err := hex.DecodeString(d.Token); err != nil || d.Token == "" || len(d.Token) > 400 {
		return errors.New("apns.token: not the device's token in hexadecimal digits")
	}
	var content map[string]json.RawMessage
	if json.Unmarshal(d.Payload, &content) != nil || content == nil {
		return errors.New("apns.payload: not an object, such as {\"aps\":{\"alert\":\"Hello\"}}")
	}
	d.PushType = cmp.Or(d.PushType, "alert")
	switch {
	case !pushTypes[d.PushType]:
		return fmt.Errorf("apns.push_type: %q is not one of Apple's, such as alert, background or voip", d.PushType)
	case d.Priority != 0 && d.Priority != 1 && d.Priority != 5 && d.Priority != 10:
		return fmt.Errorf("apns.priority: %d is not 1, 5 or 10", d.Priority)
	case d.Expiration != nil && *d.Expiration < 0:
		return fmt.Errorf("apns.expiration: %d is not a time in seconds since 1970, or 0", *d.Expiration)
	case len(d.CollapseID) > 64 || !printable(d.CollapseID):
		return errors.New("apns.collapse_id: not up to 64 printable characters")
	case !printable(d.Topic):
		return errors.New("apns.topic: not printable characters")
	}
	return nil
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

func (a *apns) send(ctx context.Context, d *device) ([]byte, error) {
	most := maxAPNs
	if d.PushType == "voip" {
		most = maxVoIP
	}
	if len(d.Payload) > most {
		return nil, bulk.Permanent("too_large", fmt.Errorf("apns.payload: %d bytes; Apple accepts at most %d", len(d.Payload), most))
	}
	header := http.Header{"Apns-Topic": {a.topic}, "Apns-Push-Type": {d.PushType}}
	if d.Topic != "" {
		header.Set("Apns-Topic", d.Topic)
	}
	if d.Priority > 0 {
		header.Set("Apns-Priority", strconv.Itoa(d.Priority))
	}
	if d.Expiration != nil {
		header.Set("Apns-Expiration", strconv.FormatInt(*d.Expiration, 10))
	}
	if d.CollapseID != "" {
		header.Set("Apns-Collapse-Id", d.CollapseID)
	}
	refused := ""
	for {
		token, err := a.provider(refused)
		if err != nil {
			return nil, err
		}
		header.Set("Authorization", "bearer "+token)
		answer, err := outbound.Post(ctx, a.client, outbound.Request{URL: a.url + d.Token, Body: d.Payload, MaxAnswer: maxAnswer, Header: header})
		if err != nil {
			return nil, noAnswer(ctx, err)
		}
		var said struct{ Reason string }
		_ = json.Unmarshal(answer.Body, &said) // 200 has none
		// A recent token is refused for a reason other than its age.
		if said.Reason == "ExpiredProviderToken" && refused == "" {
			if next, err := a.provider(token); err == nil && next != token {
				refused = token
				continue
			}
		}
		return a.read(answer, said.Reason)
	}
}

// read returns the job's result or error for Apple's response. Only errors about the device are permanent; those
// about the key, team or topic are a matter of the configuration.
func (a *apns) read(answer *outbound.Answer, reason string) ([]byte, error) {
	err := fmt.Errorf("%s responded with %d %s: %.100q", a.host, answer.Status, http.StatusText(answer.Status), reason)
	code := "apns_" + strconv.Itoa(answer.Status)
	switch {
	case answer.Status == http.StatusOK:
		return []byte(`{"status":200}`), nil
	case answer.Status == http.StatusGone: // Unregistered, ExpiredToken
		return nil, bulk.Permanent("unregistered", fmt.Errorf("%w; the app was removed from the device, delete the token", err))
	case reason == "BadDeviceToken" || reason == "DeviceTokenNotForTopic":
		return nil, bulk.Permanent("bad_device_token", fmt.Errorf("%w; the token belongs to another app, or to Apple's other environment", err))
	case answer.Status == http.StatusRequestEntityTooLarge:
		return nil, bulk.Permanent("too_large", err)
	case reason == "TopicDisallowed" || answer.Status == http.StatusForbidden || answer.Status == http.StatusUnauthorized ||
		answer.Status == http.StatusNotFound || answer.Status == http.StatusMethodNotAllowed:
		return nil, bulk.Fail(code, fmt.Errorf("%w; check apns.key_id, team_id, topic and endpoint", err))
	case answer.Status == http.StatusTooManyRequests && reason == "TooManyProviderTokenUpdates" && answer.RetryAfter >= time.Second:
		return nil, bulk.BusyGroup(answer.RetryAfter, err)
	case answer.Status == http.StatusServiceUnavailable:
		return nil, bulk.Down(bulk.Busy(answer.RetryAfter, err))
	case answer.Status == http.StatusTooManyRequests:
		return nil, bulk.Busy(answer.RetryAfter, err)
	case answer.Status >= 400 && answer.Status < 500:
		return nil, bulk.Permanent(code, err)
	}
	return nil, bulk.FailAfter(code, answer.RetryAfter, err)
}
