package push

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/oauth2/google"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
)

// scope is the OAuth scope of the service account's token.
const scope = "https://www.googleapis.com/auth/firebase.messaging"

// fcm sends to apps.
type fcm struct {
	url    string // of messages:send
	host   string
	tokens *tokens
	client *http.Client
}

func newFCM(o Options) (*fcm, error) {
	raw, err := os.ReadFile(o.CredentialsFile)
	if err != nil {
		return nil, fmt.Errorf("credentials_file: %w", err)
	}
	config, err := google.JWTConfigFromJSON(raw, scope)
	if err != nil {
		return nil, fmt.Errorf("credentials_file: %s: %w; use a service account's JSON key", o.CredentialsFile, err)
	}
	var account struct {
		Project string `json:"project_id"`
	}
	if err := json.Unmarshal(raw, &account); err != nil {
		return nil, fmt.Errorf("credentials_file: %s: %w", o.CredentialsFile, err)
	}
	endpoint := cmp.Or(o.Endpoint, "https://fcm.googleapis.com")
	u, err := outbound.ParseURL(endpoint)
	if err != nil {
		return nil, fmt.Errorf("endpoint: %w", err)
	}
	if _, err := outbound.ParseURL(config.TokenURL); err != nil {
		return nil, fmt.Errorf("credentials_file: %s: token_uri: %w", o.CredentialsFile, err)
	}
	if account.Project == "" || config.Email == "" {
		return nil, fmt.Errorf("credentials_file: %s: project_id or client_email is missing", o.CredentialsFile)
	}
	if err := checkKey(config.PrivateKey); err != nil {
		return nil, fmt.Errorf("credentials_file: %s: private_key: %w", o.CredentialsFile, err)
	}
	client := outbound.NewClient(outbound.Options{MaxPerHost: o.MaxPerHost, HTTP2: true, TLS: o.TLS})
	return &fcm{
		url:    strings.TrimSuffix(u.String(), "/") + "/v1/projects/" + url.PathEscape(account.Project) + "/messages:send",
		host:   u.Host,
		tokens: newTokens(config, client),
		client: client,
	}, nil
}

// checkMessage checks that a message has a target; FCM checks the rest.
func checkMessage(message json.RawMessage) error {
	var targets struct {
		Token, Topic, Condition string
	}
	if err := json.Unmarshal(message, &targets); err != nil {
		return errors.New("message: not an object with a string as token, topic or condition")
	}
	n := 0
	for _, t := range []string{targets.Token, targets.Topic, targets.Condition} {
		if t != "" {
			n++
		}
	}
	if n != 1 {
		return errors.New("message: give one of token, topic and condition")
	}
	return nil
}

// send posts the message. If FCM refuses the token, it is renewed once.
func (f *fcm) send(ctx context.Context, p *payload) ([]byte, error) {
	body, err := json.Marshal(struct {
		ValidateOnly bool            `json:"validate_only,omitempty"`
		Message      json.RawMessage `json:"message"`
	}{p.ValidateOnly, p.Message})
	if err != nil {
		return nil, bulk.Permanent("bad_payload", err)
	}
	for again := false; ; again = true {
		token, err := f.tokens.get(ctx)
		if err != nil {
			return nil, err
		}
		answer, err := outbound.Post(ctx, f.client, outbound.Request{
			URL: f.url, Body: body, MaxAnswer: maxAnswer, Header: http.Header{"Authorization": {"Bearer " + token}},
		})
		if err != nil {
			return nil, noAnswer(ctx, err)
		}
		refusal := fcmRefusal(answer.Body)
		if answer.Status == http.StatusUnauthorized && refusal.code != "THIRD_PARTY_AUTH_ERROR" && !again {
			f.tokens.drop(ctx, token)
			continue
		}
		return f.read(answer, refusal)
	}
}

// refused is FCM's error: {"error":{"status","message","details":[{"errorCode"}]}}.
type refused struct{ status, code, message string }

func fcmRefusal(body []byte) refused {
	var e struct {
		Error struct {
			Status, Message string
			Details         []struct {
				ErrorCode string `json:"errorCode"`
			}
		}
	}
	if json.Unmarshal(body, &e) != nil {
		return refused{}
	}
	r := refused{status: e.Error.Status, message: e.Error.Message}
	for _, d := range e.Error.Details {
		if d.ErrorCode != "" {
			r.code = d.ErrorCode
		}
	}
	return r
}

// read returns the job's result or error for FCM's response. Only UNREGISTERED is about the token: a 404 alone may be
// a wrong project, for which no token should be deleted.
func (f *fcm) read(a *outbound.Answer, r refused) ([]byte, error) {
	text := strings.Join(strings.Fields(r.code+" "+r.status+" "+r.message), " ")
	err := fmt.Errorf("%s responded with %d %s: %.300s", f.host, a.Status, http.StatusText(a.Status), text)
	code := "fcm_" + strconv.Itoa(a.Status)
	switch {
	case a.Status == http.StatusOK:
		return a.Body, nil
	case r.code == "UNREGISTERED":
		return nil, bulk.Permanent("unregistered", err)
	case a.Status == http.StatusTooManyRequests && a.RetryAfter >= time.Second: // the project's quota is used up
		return nil, bulk.BusyGroup(a.RetryAfter, err)
	case a.Status == http.StatusServiceUnavailable:
		return nil, bulk.Down(bulk.Busy(a.RetryAfter, err))
	case a.Status == http.StatusTooManyRequests:
		return nil, bulk.Busy(a.RetryAfter, err)
	case a.Status == http.StatusUnauthorized || a.Status == http.StatusForbidden && r.code != "SENDER_ID_MISMATCH":
		return nil, bulk.Fail(code, fmt.Errorf("%w; check the service account's key and role, and the project's keys", err))
	case r.code == "SENDER_ID_MISMATCH":
		return nil, bulk.Permanent("sender_id_mismatch", err)
	case a.Status >= 400 && a.Status < 500:
		return nil, bulk.Permanent(code, err)
	}
	return nil, bulk.FailAfter(code, a.RetryAfter, err)
}
