package push

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
)

// maxAnswer bounds what is read of a push service's response, which has a few hundred bytes.
const maxAnswer = 16 << 10

// Options are processors.<Name> of the configuration. At least one of the three services is required.
type Options struct {
	Name            string // the job type, for errors that name the setting; "": push
	CredentialsFile string // fcm.credentials_file: a service account's JSON key
	Endpoint        string // fcm.endpoint; "": https://fcm.googleapis.com
	VAPIDKeyFile    string // webpush.vapid_key_file: {"publicKey","privateKey","subject"}
	APNs            APNs   // apns
	// Guard checks the endpoints of Web Push subscriptions, which come from outside; required with VAPIDKeyFile.
	Guard      *outbound.Guard
	Timeout    time.Duration // of one notification; 0: 10 s
	MaxResult  int           // bytes of a result; a longer one is replaced by a note; 0: 64 KiB
	MaxPerHost int           // connections to one service; 0: outbound.DefaultMaxPerHost
	TLS        *tls.Config   // additional roots; nil: the system's
}

// Handler is a bulk.Handler that sends notifications.
type Handler struct {
	name    string
	timeout time.Duration
	most    int      // bytes of a result
	fcm     *fcm     // nil: not configured
	webpush *webPush // nil: not configured
	apns    *apns    // nil: not configured
}

var _ bulk.Handler = (*Handler)(nil)

// New reads the files that o names and does not connect. Its error names each invalid setting.
func New(o Options) (*Handler, error) {
	o.Name = cmp.Or(o.Name, "push")
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.MaxResult <= 0 {
		o.MaxResult = 64 << 10
	}
	h := &Handler{name: o.Name, timeout: o.Timeout, most: o.MaxResult}
	setting := "processors." + o.Name + "."
	if o.CredentialsFile == "" && o.VAPIDKeyFile == "" && o.APNs.KeyFile == "" {
		return nil, fmt.Errorf("%sfcm.credentials_file: empty, and so are webpush.vapid_key_file and apns.key_file; give one of them, or more", setting)
	}
	var problems []error
	if o.CredentialsFile != "" {
		var err error
		if h.fcm, err = newFCM(o); err != nil {
			problems = append(problems, fmt.Errorf("%sfcm.%w", setting, err))
		}
	} else if o.Endpoint != "" {
		problems = append(problems, fmt.Errorf("%sfcm.endpoint: it has no effect without fcm.credentials_file", setting))
	}
	if o.VAPIDKeyFile != "" {
		var err error
		if h.webpush, err = newWebPush(o); err != nil {
			problems = append(problems, fmt.Errorf("%swebpush.%w", setting, err))
		}
	}
	if o.APNs.KeyFile != "" {
		var err error
		if h.apns, err = newAPNs(o); err != nil {
			problems = append(problems, fmt.Errorf("%sapns.%w", setting, err))
		}
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return h, nil
}

// Close closes idle connections; notifications in progress are sent.
func (h *Handler) Close() error {
	if h.fcm != nil {
		h.fcm.client.CloseIdleConnections()
	}
	if h.apns != nil {
		h.apns.client.CloseIdleConnections()
	}
	if h.webpush != nil {
		h.webpush.client.CloseIdleConnections()
	}
	return nil
}

// payload is a job's payload: a message for FCM, a subscription with its data, or a notification for APNs.
type payload struct {
	Message      json.RawMessage `json:"message"`
	ValidateOnly bool            `json:"validate_only"`

	Subscription *subscription   `json:"subscription"`
	Data         json.RawMessage `json:"data"`
	TTL          *int            `json:"ttl"`
	Urgency      string          `json:"urgency"`
	Topic        string          `json:"topic"`

	APNs *device `json:"apns"`
}

// Handle sends the job's notification.
func (h *Handler) Handle(ctx context.Context, job *bulk.Job) ([]byte, error) {
	result, err := h.send(ctx, job)
	return bulk.Fitting(result, h.most), err
}

func (h *Handler) send(ctx context.Context, job *bulk.Job) ([]byte, error) {
	p, err := parse(job.Payload)
	if err != nil {
		return nil, bulk.Permanent("bad_payload", err)
	}
	ctx, cancel := context.WithTimeout(ctx, h.timeout)
	defer cancel()
	switch {
	case p.Subscription != nil && h.webpush == nil:
		return nil, bulk.Permanent("not_configured", fmt.Errorf("the payload has a subscription, but processors.%s.webpush.vapid_key_file is not set", h.name))
	case p.Subscription != nil:
		return h.webpush.send(ctx, p)
	case p.APNs != nil && h.apns == nil:
		return nil, bulk.Permanent("not_configured", fmt.Errorf("the payload has apns, but processors.%s.apns.key_file is not set", h.name))
	case p.APNs != nil:
		return ofService(h.apns.send(ctx, p.APNs))
	case h.fcm == nil:
		return nil, bulk.Permanent("not_configured", fmt.Errorf("the payload has a message, but processors.%s.fcm.credentials_file is not set", h.name))
	}
	return ofService(h.fcm.send(ctx, p))
}

// ofService marks errors about the service as a whole. Web Push has one service for each browser, so its errors are
// not marked.
func ofService(result []byte, err error) ([]byte, error) {
	if f, ok := errors.AsType[*bulk.Failure](err); ok {
		switch f.Code {
		case "timeout", "connection", "apns_401", "apns_502", "apns_504", "fcm_401", "fcm_502", "fcm_504", "fcm_credentials", "fcm_token_502", "fcm_token_504":
			f.Down = true
		}
	}
	return result, err
}

// parse checks the payload without knowing the service. Its error names the field.
func parse(raw []byte) (*payload, error) {
	p := &payload{}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(p); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok && wrong.Field != "" {
			err = fmt.Errorf("%s: must not be a %s", wrong.Field, wrong.Value)
		}
		return nil, fmt.Errorf("the payload: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("the payload: more than one JSON value")
	}
	isWeb := p.Data != nil || p.TTL != nil || p.Urgency != "" || p.Topic != ""
	services := 0
	for _, there := range []bool{p.Message != nil, p.Subscription != nil, p.APNs != nil} {
		if there {
			services++
		}
	}
	switch {
	case services != 1:
		return nil, errors.New("message, subscription, apns: give one of them, message for FCM, subscription for Web Push or apns for Apple's devices")
	case p.Subscription == nil && isWeb:
		return nil, errors.New("data, ttl, urgency, topic: only valid with subscription; message and apns have their own")
	case p.Message == nil && p.ValidateOnly:
		return nil, errors.New("validate_only: only valid with message")
	case p.Message != nil:
		return p, checkMessage(p.Message)
	case p.APNs != nil:
		return p, p.APNs.check()
	}
	return p, p.Subscription.check()
}

// noAnswer returns the job's error for a call without a response.
func noAnswer(ctx context.Context, err error) error {
	if refused, ok := errors.AsType[*outbound.RefusedError](err); ok {
		return bulk.Permanent("address_refused", refused)
	}
	switch {
	case errors.Is(ctx.Err(), context.Canceled): // err may be its cause
		return bulk.Fail("cancelled", err)
	case ctx.Err() != nil || outbound.IsTimeout(err):
		return bulk.Fail("timeout", err)
	}
	return bulk.Fail("connection", err)
}
