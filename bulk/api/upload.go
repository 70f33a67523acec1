package api

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

const (
	maxRejections = 1000 // lines listed in a response; all are counted
	// Bounds of a body without a key, which is read whole before any of it is used.
	maxKeyless      = 10_000   // lines
	maxKeylessBytes = 16 << 20 // of one body
	maxHeld         = 256 << 20
	maxKey          = 128 // characters of an Idempotency-Key
)

// sink is the part of the store that an upload writes to.
type sink interface {
	AddJobs(ctx context.Context, group string, c store.Chunk, jobs []store.Job) (store.Added, error)
}

// counted counts accepted jobs.
type counted struct {
	sink
	enqueued func(jobs int64)
}

func (c counted) AddJobs(ctx context.Context, group string, chunk store.Chunk, jobs []store.Job) (store.Added, error) {
	added, err := c.sink.AddJobs(ctx, group, chunk, jobs)
	c.enqueued(added.Accepted)
	return added, err
}

// reject counts a rejected line.
func (u *upload) reject(line int64, reason string) {
	u.RejectedTotal++
	if len(u.Rejected) < maxRejections {
		u.Rejected = append(u.Rejected, bulktype.Rejection{Line: line, Reason: reason})
	}
}

// upload adds the lines of one body to a group, in order, in batches that the store accepts whole or not at all. It
// holds one line and two batches: one is filled while the store receives the other.
type upload struct {
	to    sink
	group string
	key   string // of the chunk; empty: the upload cannot be resumed
	// created is when the group was created; zero: any group.
	created time.Time

	maxPending int64
	trace      store.Trace // of the request
	ids        lineIDs
	allow      func(kind string) bool
	waits      []time.Duration
	body       *sentBody // of an upload with a key

	bulktype.Tally
	sent   int64 // jobs that the store has replied to
	filled *batch
	flying *batch // being sent; nil: none
	landed chan landing
}

type batch struct {
	jobs   []store.Job
	bytes  int    // of payloads
	arena  []byte // holds the payloads
	offset int64  // line of the first job, from 0
}

type landing struct {
	added store.Added
	err   error
}

// run adds all lines. After an error, the jobs that the store accepted stay in the group, and a chunk stays open.
func (u *upload) run(ctx context.Context, lines *lineReader) error {
	u.Rejected, u.filled, u.landed = []bulktype.Rejection{}, new(batch), make(chan landing, 1)
	err := u.read(ctx, lines)
	if landed := u.land(); err == nil {
		err = landed
	}
	return err
}

func (u *upload) read(ctx context.Context, lines *lineReader) error {
	for {
		line, long, err := lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return u.finish(ctx)
		case err != nil:
			return ophttp.BrokenBody(err)
		case long:
			u.reject(lines.line, fmt.Sprintf("the line is longer than limits.line, %d bytes", lines.most))
			continue
		case len(bytes.Trim(line, " \t\r")) == 0:
			continue
		}
		var job store.Job
		if wrong := parseJob(line, &job); wrong != "" {
			u.reject(lines.line, wrong)
			continue
		}
		if job.Type != "" && u.allow != nil && !u.allow(job.Type) {
			u.reject(lines.line, fmt.Sprintf("type %q has no handler here", job.Type))
			continue
		}
		if err := u.put(ctx, job, lines.line); err != nil {
			return err
		}
	}
}

func (u *upload) put(ctx context.Context, job store.Job, line int64) error {
	if len(u.filled.jobs) == store.MaxAdd || u.filled.bytes+len(job.Payload) > store.MaxAddBytes {
		if err := u.flush(ctx); err != nil {
			return err
		}
	}
	b := u.filled
	if len(b.jobs) == 0 {
		b.offset = line - 1
	}
	if job.ID == "" {
		job.ID = u.ids.of(line)
	}
	// The line's buffer is reused. When the arena grows, payloads of earlier jobs keep the old one.
	at := len(b.arena)
	b.arena = append(b.arena, job.Payload...)
	job.Payload = b.arena[at:len(b.arena):len(b.arena)]
	b.bytes += len(job.Payload)
	b.jobs = append(b.jobs, job)
	return nil
}

// flush sends the filled batch to the store after the one before has been accepted.
func (u *upload) flush(ctx context.Context) error {
	free := u.flying
	if err := u.land(); err != nil {
		return err
	}
	if free == nil {
		free = new(batch)
	}
	b := u.filled
	u.filled, u.flying = free, b
	go func() {
		added, err := u.add(ctx, store.Chunk{Offset: b.offset}, b.jobs)
		u.landed <- landing{added, err}
	}()
	return nil
}

// land waits for the batch that is being sent, and empties it.
func (u *upload) land() error {
	b := u.flying
	if b == nil {
		return nil
	}
	u.flying = nil
	l := <-u.landed
	if l.err != nil {
		return l.err
	}
	u.count(l.added, len(b.jobs))
	*b = batch{jobs: b.jobs[:0], arena: b.arena[:0]}
	return nil
}

// count adds the store's reply to a batch. For a chunk, the reply counts the chunk's jobs in the group, whichever
// attempt added them:
//
//	accepted   = Before + Accepted of the last batch
//	duplicates = jobs sent - accepted
func (u *upload) count(a store.Added, jobs int) {
	u.sent += int64(jobs)
	if u.key == "" {
		u.Accepted += a.Accepted
	} else {
		u.Accepted = a.Before + a.Accepted
	}
	u.Duplicates = max(0, u.sent-u.Accepted) // an earlier attempt may have sent more
}

// finish sends the rest. A chunk with a key ends with its response, which the store keeps for repetitions.
func (u *upload) finish(ctx context.Context) error {
	if u.key == "" && len(u.filled.jobs) > 0 {
		if err := u.flush(ctx); err != nil {
			return err
		}
	}
	if err := u.land(); err != nil || u.key == "" {
		return err
	}
	if last := u.filled; len(last.jobs) > 0 {
		// Usually none of the jobs is in the group yet, and the response is known in advance.
		whole := u.Tally
		whole.Accepted += int64(len(last.jobs))
		added, err := u.add(ctx, store.Chunk{Offset: last.offset, Last: true, Whole: whole.Accepted, Answer: ophttp.Marshal(kept{whole, u.body.digest()})}, last.jobs)
		if err != nil {
			return err
		}
		u.count(added, len(last.jobs))
		if added.Done {
			return nil
		}
	}
	_, err := u.add(ctx, store.Chunk{Offset: u.filled.offset, Last: true, Answer: ophttp.Marshal(kept{u.Tally, u.body.digest()})}, nil)
	return err
}

// add calls the store, and again during an outage if the upload has a key, which makes repetition safe.
func (u *upload) add(ctx context.Context, c store.Chunk, jobs []store.Job) (added store.Added, err error) {
	c.Key, c.MaxPending, c.Created, c.Trace = u.key, u.maxPending, u.created, u.trace
	waits := u.waits
	if u.key == "" {
		waits = nil
	}
	err = patiently(ctx, waits, func() error {
		added, err = u.to.AddJobs(ctx, u.group, c, jobs)
		return err
	})
	return added, err
}

// outageWaits are the pauses in which an upload waits for a restarting store before it fails.
var outageWaits = []time.Duration{100e6, 200e6, 400e6, 800e6, 1600e6, 3200e6}

// patiently calls f, and again after each pause during an outage of the store.
func patiently(ctx context.Context, waits []time.Duration, f func() error) error {
	for {
		err := f()
		if len(waits) == 0 || !errors.Is(err, store.ErrStore) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(waits[0]):
			waits = waits[1:]
		}
	}
}

// uploadKey returns the Idempotency-Key, "" without one.
func uploadKey(r *http.Request) (string, error) {
	values := r.Header.Values("Idempotency-Key")
	if len(values) == 0 {
		return "", nil
	}
	key := strings.TrimSpace(values[0])
	if len(values) > 1 || key == "" || len(key) > maxKey || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return "", ophttp.NewProblem(http.StatusUnprocessableEntity, string(store.CodeChunkReuse), "Idempotency-Key must be sent once and have 1 to %d printable ASCII characters without blanks", maxKey)
	}
	return key, nil
}

// chunkKey and bulkKey return the store's names of a chunk and of the upload of POST /v1/bulk.
func chunkKey(key string) string { return "c:" + key }
func bulkKey(key string) string  { return "b:" + key }

// whole reads a body without a key to its end, so that an interrupted upload adds no jobs. release frees the memory
// that it counts.
func (s uploadRoutes) whole(who identity, body io.Reader, with string) (lines io.Reader, release func(), err error) {
	var held int64
	release = func() { s.uploads.free(who, held) }
	var b bytes.Buffer
	count, last := 0, byte('\n')
	piece := make([]byte, 64<<10)
	for {
		n, err := body.Read(piece)
		if n > 0 {
			if !s.uploads.take(who, int64(n)) {
				release()
				p := ophttp.NewProblem(http.StatusServiceUnavailable, "busy", "too many uploads without a key are in progress: send %s to have the body streamed", with)
				p.RetryAfter = time.Second
				return nil, nil, p
			}
			held += int64(n)
			count += bytes.Count(piece[:n], []byte{'\n'})
			last = piece[n-1]
			b.Write(piece[:n])
		}
		if count > maxKeyless || count == maxKeyless && last != '\n' || b.Len() > maxKeylessBytes {
			release()
			return nil, nil, ophttp.NewProblem(http.StatusUnprocessableEntity, string(store.CodeChunkReuse),
				"an upload that cannot be resumed has at most %d lines and %d bytes, and no job of this one was accepted: send it with %s for any length", maxKeyless, maxKeylessBytes, with)
		}
		if errors.Is(err, io.EOF) {
			return &b, release, nil
		}
		if err != nil {
			release()
			return nil, nil, ophttp.BrokenBody(err)
		}
	}
}

var addFields = []field[time.Time]{{"created_at", ruleMoment, func(to *time.Time, raw []byte) (wrong string) {
	*to, wrong = moment(raw)
	return wrong
}, true}}

// addJobs adds a chunk of jobs to a group.
func (s uploadRoutes) addJobs(w http.ResponseWriter, r *http.Request, who identity) (failed error) {
	id, err := s.visible(r, who)
	if err != nil {
		return refuseUpload(r, err)
	}
	release, err := s.decompress(w, r, who)
	if err != nil {
		return refuseUpload(r, err)
	}
	defer release()
	key, err := uploadKey(r)
	if err == nil {
		err = ophttp.CheckContentType(r, true, lineTypes...)
	}
	var created time.Time
	if err == nil {
		err = readQuery(r, addFields, &created)
	}
	if err != nil {
		return refuseUpload(r, err)
	}
	var body io.Reader = r.Body
	u := &upload{created: created, to: counted{s.store, s.o.Enqueued}, group: id, maxPending: who.most.Pending, allow: s.o.AllowType, waits: outageWaits}
	submission := s.o.Tracer.Submit(r, "/v1/groups/{id}/jobs")
	u.trace = submission.Trace
	defer func() { submission.End(u.group, u.Accepted, failed) }()
	if key == "" || !created.IsZero() { // before the body is read
		g, err := s.store.Group(r.Context(), id)
		switch {
		case err != nil:
		case !created.IsZero() && !g.CreatedAt.Equal(created):
			err = store.Replaced(id)
		case g.Sealed && key == "":
			err = sealed(id)
		}
		if err != nil {
			return refuseUpload(r, err)
		}
	}
	if key == "" {
		var release func()
		if body, release, err = s.whole(who, body, "an Idempotency-Key"); err != nil {
			return refuseUpload(r, err)
		}
		defer release()
		u.ids = newLineIDs(drawID())
	} else {
		u.key, u.ids, u.body = chunkKey(key), newLineIDs(chunkKey(key)), newSentBody(body)
		body = u.body
		state, err := s.store.ChunkState(r.Context(), id, u.key)
		if err != nil {
			return refuseUpload(r, err)
		}
		if state.Done {
			return u.again(w, state.Answer)
		}
	}
	err = u.run(r.Context(), newLineReader(body, s.o.Limits.Line))
	if done, is := errors.AsType[*store.ChunkDone](err); is { // a concurrent request finished it
		return u.again(w, done.Answer)
	}
	if err != nil {
		return refuseUpload(r, u.explain(err))
	}
	return ophttp.OK(w, u.Tally)
}

// again responds to a repeated chunk as the first time.
func (u *upload) again(w http.ResponseWriter, answer []byte) error {
	if err := u.recall(answer); err != nil {
		return err
	}
	return ophttp.OK(w, u.Tally)
}

func sealed(group string) *ophttp.Problem {
	return ophttp.NewProblem(http.StatusConflict, string(store.CodeSealed), "group %q is sealed: it accepts no more jobs; create a new group for them", group)
}

const ndjson = "application/x-ndjson"

var lineTypes = []string{ndjson, "application/ndjson", "application/jsonl", "application/json-lines", "application/json"}

// explain adds to an error how far the upload came and how to continue.
func (u *upload) explain(err error) error {
	p := asProblem(err)
	p.Accepted = &u.Accepted
	switch {
	case again(p) && u.key != "":
		p.Detail += ". The jobs received so far are kept: to continue, send the same again with the same key"
	case u.Accepted > 0:
		p.Detail += fmt.Sprintf(". The first %d jobs were accepted, the others were not; without an Idempotency-Key, repeating the request adds jobs without an id twice", u.Accepted)
	}
	return p
}

// refuseUpload lets a client that is still writing finish, so that it reads the response. A client that sent Expect
// has not begun.
func refuseUpload(r *http.Request, err error) error {
	if r.Header.Get("Expect") == "" {
		body := r.Body
		if e, compressed := body.(*encodedBody); compressed {
			body = e.sent.ReadCloser
		}
		_ = drain(body, maxDrain) // the upload is refused anyway
	}
	return err
}
