package store

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// ErrStore is wrapped by errors that mean an outage.
var ErrStore = errors.New("the store does not answer")

// ErrFull is an ErrStore, and is wrapped by errors that mean that the store's memory is full (maxmemory of Redis): what was asked was not done.
var ErrFull error = fullStore{}

// IsFull says whether an error of a call, as Options.Observe is told of it, means that.
func IsFull(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

type fullStore struct{}

func (fullStore) Error() string { return "the store's memory is full" }
func (fullStore) Unwrap() error { return ErrStore }

// Code tells refusals apart; package api maps it to an HTTP status.
type Code string

// The reasons of a refusal.
const (
	CodeNotFound   Code = "not_found"
	CodeNotKept    Code = "result_not_kept" // the group keeps other outcomes only
	CodeExists     Code = "exists"          // another group has that id
	CodeSealed     Code = "sealed"          // no more jobs
	CodeState      Code = "wrong_state"     // the group's status does not allow it
	CodeHalfIn     Code = "chunk_open"      // a chunk is half in; send it again, then seal, or seal abandoning it
	CodeQuota      Code = "quota"           // limits.pending_per_tenant, or a ceiling of a token
	CodeOperators  Code = "operators_only"
	CodeInvalid    Code = "invalid"
	CodeChunkReuse Code = "idempotency_key" // the key was used for something else
)

// Refusal is a call that the store understood and did not carry out. Detail names the field and the way out.
type Refusal struct {
	Code   Code
	Detail string
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Detail) }

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Detail: fmt.Sprintf(format, args...)}
}
