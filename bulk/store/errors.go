package store

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

// ErrStore is wrapped by errors of an outage.
var ErrStore = errors.New("the store does not answer")

// ErrFull is an ErrStore that is wrapped by errors of a store whose memory is full (maxmemory of Redis): the call had
// no effect.
var ErrFull error = fullStore{}

// IsFull reports whether an error, as passed to Options.Observe, means a full store.
func IsFull(err error) bool { return redis.HasErrorPrefix(err, "OOM") }

type fullStore struct{}

func (fullStore) Error() string { return "the store's memory is full" }
func (fullStore) Unwrap() error { return ErrStore }

// Code is the reason of a refusal; package api maps it to an HTTP status.
type Code string

// The reasons of a refusal.
const (
	CodeNotFound   Code = "not_found"
	CodeNotKept    Code = "result_not_kept" // the group keeps other outcomes only
	CodeExists     Code = "exists"          // another group has this id, or a group of this id is being deleted
	CodeSealed     Code = "sealed"          // accepts no more jobs
	CodeState      Code = "wrong_state"     // the group's status does not allow it
	CodeHalfIn     Code = "chunk_open"      // a chunk is incomplete: send it again, then seal, or seal abandoning it
	CodeQuota      Code = "quota"           // limits.pending_per_tenant, or a ceiling of a token
	CodeOperators  Code = "operators_only"
	CodeInvalid    Code = "invalid"
	CodeChunkReuse Code = "idempotency_key" // the key was used for something else
)

// Refusal is a call that the store refused. Detail names the field and the way out.
type Refusal struct {
	Code     Code
	Detail   string
	Deleting bool // with CodeExists: the group of this id is being deleted, so the same call succeeds later
}

func (r *Refusal) Error() string { return fmt.Sprintf("%s: %s", r.Code, r.Detail) }

func refuse(code Code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Detail: fmt.Sprintf(format, args...)}
}
