package email

import (
	"context"
	"errors"
	"fmt"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk"
	"github.com/anteroom/anteroom/bulk/outbound"
)

// enhanced matches the RFC 3463 status at the beginning of a reply's text.
var enhanced = regexp.MustCompile(`^\s*([245]\.\d{1,3}\.\d{1,3})\b`)

// meaning returns the job's error for an undelivered message:
//
//	5xx of the message (MAIL, RCPT, DATA)            permanent  smtp_<code>
//	5xx before it (greeting, STARTTLS, AUTH), 530    a failed try: a matter of the configuration, not of the job
//	4xx about the server itself                      busy: 421, 432, 454, 452 except of RCPT, 4.3.x, any before RCPT
//	greylisting: 450 and 451 that say so or are 4.7.x  a failed try; the next one after greylistDelay
//	other 4xx, about a recipient or a message        a failed try (a full mailbox)
//	no reply                                         a failed try: timeout, connection
//
// Replies about the server itself, and missing replies, count for the processor's breaker.
func (h *Handler) meaning(ctx context.Context, err error) error {
	code, status := 0, ""
	if said, ok := errors.AsType[*textproto.Error](err); ok {
		code = said.Code
		if m := enhanced.FindStringSubmatch(said.Msg); m != nil {
			status = m[1]
		}
	}
	reply, isReply := errors.AsType[*replyError](err)
	if isReply && code == 0 {
		code = reply.code
	}
	early, isEarly := errors.AsType[*stageError](err)
	switch name := "smtp_" + strconv.Itoa(code); {
	case ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled):
		return bulk.Fail("cancelled", fmt.Errorf("%w (%w)", context.Cause(ctx), err))
	case ctx.Err() != nil || code == 0 && outbound.IsTimeout(err):
		return bulk.Down(bulk.Fail("timeout", fmt.Errorf("the mail server did not accept the message in time: %w", err)))
	case code == 530 || code >= 500 && isEarly:
		return bulk.Down(bulk.Fail(name, fmt.Errorf("the mail server refuses the connection, check processors.%s.smtp: %w", h.name, err)))
	case code >= 500:
		return bulk.Permanent(name, err)
	case code >= 400 && (isEarly || ofServer(code, status, reply.command)):
		return bulk.Down(bulk.Busy(0, err))
	case greylisted(code, status, err):
		return bulk.FailAfter(name, greylistDelay, err)
	case code >= 400:
		return bulk.Fail(name, err)
	case isEarly && early.stage == "auth":
		return bulk.Down(bulk.Fail("smtp_auth", fmt.Errorf("check processors.%s.smtp: %w", h.name, err)))
	}
	return bulk.Down(bulk.Fail("connection", err))
}

// greylistDelay is how long a message waits after greylisting. Servers commonly accept it after one to five minutes.
const greylistDelay = 5 * time.Minute

// greylisted reports whether a reply asks to send the message again later.
func greylisted(code int, status string, err error) bool {
	if code != 450 && code != 451 {
		return false
	}
	text := strings.ToLower(err.Error())
	return strings.HasPrefix(status, "4.7.") || strings.Contains(text, "greylist") || strings.Contains(text, "graylist")
}

// ofServer reports whether a 4xx concerns the server and not a recipient or the message.
func ofServer(code int, status, command string) bool {
	switch code {
	case 421, 432, 454:
		return true
	case 452: // storage; for a recipient a full mailbox, or too many recipients
		return !strings.HasPrefix(command, "RCPT")
	}
	return command == "MAIL" || strings.HasPrefix(status, "4.3.")
}
