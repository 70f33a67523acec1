package push

import (
	"context"
	"crypto/ecdh"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"

	"github.com/SherClockHolmes/webpush-go"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
)

const (
	// maxData is the room for data in the one record of 4096 bytes that services must accept (RFC 8291, 4), besides
	// padding, key and tag.
	maxData = 4096 - 16 - 86 - 1
	// defaultTTL and maxTTL are how long a service keeps a notification for an offline browser, in seconds. Large
	// services reduce it to four weeks.
	defaultTTL = 24 * 60 * 60
	maxTTL     = 28 * 24 * 60 * 60
)

// webPush sends to browsers.
type webPush struct {
	guard   *outbound.Guard
	client  *http.Client
	subject string
	public  string
	private string
}

// vapidFile is the output of `web-push generate-vapid-keys --json` with a subject.
type vapidFile struct {
	PublicKey  string `json:"publicKey"`
	PrivateKey string `json:"privateKey"`
	Subject    string `json:"subject"` // contact for the push service: mailto:… or https://…
}

func newWebPush(o Options) (*webPush, error) {
	raw, err := os.ReadFile(o.VAPIDKeyFile)
	if err != nil {
		return nil, fmt.Errorf("vapid_key_file: %w", err)
	}
	problem := func(format string, args ...any) (*webPush, error) {
		return nil, fmt.Errorf("vapid_key_file: %s: %w", o.VAPIDKeyFile, fmt.Errorf(format, args...))
	}
	var file vapidFile
	if err := json.Unmarshal(raw, &file); err != nil {
		return problem(`not {"publicKey","privateKey","subject"}: %w`, err)
	}
	private, err := decode(file.PrivateKey)
	if err != nil {
		return problem("privateKey: %w", err)
	}
	key, err := ecdh.P256().NewPrivateKey(private)
	if err != nil {
		return problem("privateKey: not the 32 bytes of a P-256 key")
	}
	public := key.PublicKey().Bytes()
	if given, err := decode(file.PublicKey); file.PublicKey != "" && (err != nil || string(given) != string(public)) {
		return problem("publicKey: not that of privateKey")
	}
	subject, isMail := strings.CutPrefix(file.Subject, "mailto:")
	if u, err := url.Parse(file.Subject); isMail && !strings.Contains(subject, "@") ||
		!isMail && (err != nil || u.Scheme != "https" || u.Host == "") {
		return problem("subject: %q is not a contact for push services; use mailto:name@example.com or an https URL", file.Subject)
	}
	if o.Guard == nil {
		return nil, errors.New("vapid_key_file: Options.Guard is required, since endpoints come from outside")
	}
	return &webPush{
		guard:   o.Guard,
		client:  outbound.NewClient(outbound.Options{Guard: o.Guard, MaxPerHost: o.MaxPerHost, HTTP2: true, TLS: o.TLS}),
		subject: subject, // the library adds mailto: unless it begins with https:
		public:  base64.RawURLEncoding.EncodeToString(public),
		private: base64.RawURLEncoding.EncodeToString(private),
	}, nil
}

// subscription is a browser's PushSubscription as JSON.
type subscription struct {
	Endpoint       string          `json:"endpoint"`
	ExpirationTime json.RawMessage `json:"expirationTime"` // sent by browsers, unused: 404 and 410 report the end
	Keys           struct {
		P256dh string `json:"p256dh"`
		Auth   string `json:"auth"`
	} `json:"keys"`
}

// check validates the keys and converts them to one encoding.
func (s *subscription) check() error {
	if s.Endpoint == "" {
		return errors.New("subscription.endpoint: empty")
	}
	key, err := decode(s.Keys.P256dh)
	if err == nil {
		_, err = ecdh.P256().NewPublicKey(key)
	}
	if err != nil {
		return errors.New("subscription.keys.p256dh: not a P-256 public key as base64url")
	}
	auth, err := decode(s.Keys.Auth)
	if err != nil || len(auth) != 16 {
		return errors.New("subscription.keys.auth: not 16 bytes as base64url")
	}
	s.Keys.P256dh, s.Keys.Auth = base64.RawURLEncoding.EncodeToString(key), base64.RawURLEncoding.EncodeToString(auth)
	return nil
}

// decode decodes base64 of either alphabet, padded or not.
func decode(text string) ([]byte, error) {
	if text == "" {
		return nil, errors.New("empty")
	}
	text = strings.NewReplacer("+", "-", "/", "_").Replace(strings.TrimRight(text, "="))
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil {
		return nil, errors.New("not base64url")
	}
	return b, nil
}

var topic = regexp.MustCompile(`^[A-Za-z0-9_-]{1,32}$`)

// notification checks the rest of a Web Push payload and returns the bytes for the browser and the delivery options.
func (w *webPush) notification(p *payload) ([]byte, *webpush.Options, error) {
	data := []byte(p.Data)
	var text string
	if json.Unmarshal(p.Data, &text) == nil {
		if err := bulk.CheckText(p.Data); err != nil {
			return nil, nil, fmt.Errorf("data: %w", err)
		}
		data = []byte(text) // a string is sent as text, null as no text, anything else as JSON
	}
	o := &webpush.Options{
		HTTPClient: w.client, Subscriber: w.subject, VAPIDPublicKey: w.public, VAPIDPrivateKey: w.private,
		TTL: defaultTTL, Topic: p.Topic, Urgency: webpush.UrgencyNormal,
	}
	if p.TTL != nil {
		if o.TTL = *p.TTL; o.TTL < 0 || o.TTL > maxTTL {
			return nil, nil, fmt.Errorf("ttl: %d is not 0 to %d seconds", o.TTL, maxTTL)
		}
	}
	switch u := webpush.Urgency(p.Urgency); u {
	case "":
	case webpush.UrgencyVeryLow, webpush.UrgencyLow, webpush.UrgencyNormal, webpush.UrgencyHigh:
		o.Urgency = u
	default:
		return nil, nil, fmt.Errorf("urgency: %q is not very-low, low, normal or high", p.Urgency)
	}
	if p.Topic != "" && !topic.MatchString(p.Topic) {
		return nil, nil, errors.New("topic: not 1 to 32 characters of A-Z a-z 0-9 _ -")
	}
	return data, o, nil
}

// endpoint checks the target. Push services use https; other schemes need a host listed by the operator.
func (w *webPush) endpoint(raw string) (*url.URL, error) {
	u, err := w.guard.CheckURL(raw)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" && !w.guard.Listed(u) {
		return nil, fmt.Errorf("the scheme is %s, not https, and the host is not listed in callbacks.allow", u.Scheme)
	}
	return u, nil
}

func (w *webPush) send(ctx context.Context, p *payload) ([]byte, error) {
	u, err := w.endpoint(p.Subscription.Endpoint)
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return nil, bulk.Permanent("address_refused", fmt.Errorf("subscription.endpoint: %w", refused))
	}
	if err != nil {
		return nil, bulk.Permanent("bad_payload", fmt.Errorf("subscription.endpoint: %w", err))
	}
	data, o, err := w.notification(p)
	if err != nil {
		return nil, bulk.Permanent("bad_payload", err)
	}
	if len(data) > maxData {
		return nil, bulk.Permanent("too_large", fmt.Errorf("data: %d bytes; Web Push carries at most %d", len(data), maxData))
	}
	resp, err := webpush.SendNotificationWithContext(ctx, data, &webpush.Subscription{
		Endpoint: u.String(), Keys: webpush.Keys{P256dh: p.Subscription.Keys.P256dh, Auth: p.Subscription.Keys.Auth},
	}, o)
	if err != nil {
		return nil, noAnswer(ctx, outbound.Cause(u, err))
	}
	location := resp.Header.Get("Location")
	answer, err := outbound.Read(resp, maxAnswer)
	if err != nil {
		return nil, noAnswer(ctx, err)
	}
	return w.read(u.Host, answer, location)
}

// read returns the job's result or error for a push service's response (RFC 8030, 5 and 7.3; RFC 8292, 4.2).
func (w *webPush) read(host string, a *outbound.Answer, location string) ([]byte, error) {
	text := strings.Join(strings.Fields(strings.ToValidUTF8(string(a.Body), "")), " ")
	err := fmt.Errorf("%s responded with %d %s: %.200s", host, a.Status, http.StatusText(a.Status), text)
	code := "webpush_" + strconv.Itoa(a.Status)
	switch {
	case a.Status >= 200 && a.Status < 300:
		return json.Marshal(struct {
			Status   int    `json:"status"`
			Location string `json:"location,omitempty"` // of the message at the service
		}{a.Status, location})
	case a.Status == http.StatusNotFound || a.Status == http.StatusGone:
		return nil, bulk.Permanent("gone", fmt.Errorf("%w; the subscription has ended, delete it", err))
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden:
		return nil, bulk.Fail(code, fmt.Errorf("%w; the subscription was made with another key; check webpush.vapid_key_file", err))
	case a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable:
		return nil, bulk.Busy(a.RetryAfter, err)
	case a.Status == http.StatusRequestEntityTooLarge:
		return nil, bulk.Permanent("too_large", err)
	case a.Status >= 400 && a.Status < 500:
		return nil, bulk.Permanent(code, err)
	}
	return nil, bulk.FailAfter(code, a.RetryAfter, err)
}
