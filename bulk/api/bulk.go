package api

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// drawID returns an id that cannot be guessed.
func drawID() string { return strings.ToLower(rand.Text()) }

// derivedID returns the id of a group that is named by its tenant and the Idempotency-Key of the request that creates
// it.
func derivedID(what, tenant, key string) string {
	sum := sha256.Sum256([]byte(what + "\x00" + tenant + "\x00" + key))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:])[:26])
}

// bulk creates a group, adds jobs and seals it, in one request. An interrupted upload continues when it is sent again
// with the same id or, without one, the same tenant and Idempotency-Key.
func (s uploadRoutes) bulk(w http.ResponseWriter, r *http.Request, who identity) (failed error) {
	release, err := s.decompress(w, r, who)
	if err != nil {
		return refuseUpload(r, err)
	}
	defer release()
	spec, key, err := s.readBulk(r, who)
	if err != nil {
		return refuseUpload(r, err)
	}
	var body io.Reader = r.Body
	if spec.ID == "" && key == "" {
		var release func()
		if body, release, err = s.whole(who, body, "an id or an Idempotency-Key"); err != nil {
			return refuseUpload(r, err)
		}
		defer release()
	}
	ctx := r.Context()
	submission := s.o.Tracer.Submit(r, "/v1/bulk")
	u := &upload{trace: submission.Trace}
	defer func() { submission.End(spec.ID, u.Accepted, failed) }()
	spec.Trace = submission.Trace
	first, _, err := s.create(ctx, who, &spec, "bulk", key)
	if err != nil {
		return refuseUpload(r, err)
	}
	if first.Duplicate {
		_ = drain(r.Body, maxDrain) // so that a client that writes before it reads gets the response
		w.Header().Set("Location", "/v1/groups/"+first.ID)
		return ophttp.OK(w, bulktype.BulkAnswer[timestamp]{Group: s.view(first), Tally: bulktype.Tally{Rejected: []bulktype.Rejection{}}})
	}
	*u = upload{to: counted{s.store, s.o.Enqueued}, group: spec.ID, maxPending: who.most.Pending, key: bulkKey(key), ids: newLineIDs(bulkKey(key)), allow: s.o.AllowType, waits: outageWaits,
		body: newSentBody(body), trace: submission.Trace}
	state, err := s.store.ChunkState(ctx, spec.ID, u.key)
	if err != nil {
		return refuseUpload(r, err)
	}
	if !state.Done {
		err := u.run(ctx, newLineReader(u.body, s.o.Limits.Line))
		if done, is := errors.AsType[*store.ChunkDone](err); is { // a concurrent request finished it
			state = store.ChunkState{Done: true, Answer: done.Answer}
		} else if err != nil {
			return refuseUpload(r, u.explainBulk(err))
		}
	}
	status := http.StatusCreated
	if state.Done {
		status = http.StatusOK
		if err := u.recall(state.Answer); err != nil {
			return err
		}
	}
	var g store.Group
	err = patiently(ctx, outageWaits, func() error {
		g, err = s.store.Seal(ctx, spec.ID)
		return err
	})
	if err != nil {
		return u.explainBulk(err)
	}
	w.Header().Set("Location", "/v1/groups/"+spec.ID)
	ophttp.WriteJSON(w, status, "application/json", bulktype.BulkAnswer[timestamp]{Group: s.view(g), Tally: u.Tally})
	return nil
}

func (s uploadRoutes) readBulk(r *http.Request, who identity) (spec store.GroupSpec, key string, err error) {
	faults := complete(&spec, who.bound(&spec, decodeQuery(s.specFields(), r.URL.Query(), &spec)))
	if len(faults) > 0 {
		return spec, "", ophttp.Invalid(faults...)
	}
	if err := who.forTenant(spec.Tenant); err != nil {
		return spec, "", err
	}
	if err := ophttp.CheckContentType(r, true, lineTypes...); err != nil {
		return spec, "", err
	}
	key, err = uploadKey(r)
	return spec, key, err
}

// explainBulk adds to an error the group's id, with which the upload continues.
func (u *upload) explainBulk(err error) error {
	p := asProblem(err)
	p.Group, p.Accepted = u.group, &u.Accepted
	if again(p) {
		p.Detail += ". The group " + u.group + " is not sealed and keeps the jobs received so far: to continue, send the same again with id=" + u.group + " and the same Idempotency-Key, if there was one"
	}
	return p
}
