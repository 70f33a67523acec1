package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/anteroom/anteroom/bulk/bulktype"
)

// Bounds of an upload.
const (
	// ChunkLines and ChunkBytes end a chunk, whichever is reached first.
	ChunkLines = 5000
	ChunkBytes = 4 << 20
	// MaxLine is the longest line that is sent; longer ones are rejected here. No server accepts longer ones.
	MaxLine = 1 << 20
	// KeptRejections is how many rejected lines Uploaded lists.
	KeptRejections = 1000
	maxUploadID    = 64
)

// Job is a job of a group.
type Job struct {
	ID      string          `json:"id,omitempty"`   // unique in its group; empty: made from the upload's id and the line
	Type    string          `json:"type,omitempty"` // empty: the group's
	Payload json.RawMessage `json:"payload"`
	Cost    int64           `json:"cost,omitempty"` // in units of the rates, 1…1,000; 0 means 1
	RunAt   time.Time       `json:"run_at,omitzero"`
}

// Upload are the options of an upload.
type Upload struct {
	// ID names the upload. Sending the same jobs to the same group under the same ID repeats the upload: accepted
	// jobs are not added twice, even those without ids. 1…64 printable ASCII characters without blanks; empty: a
	// random one.
	ID string
	// OnChunk is called after each chunk.
	OnChunk func(Uploaded)
	// OnRejected is called with each rejected line; the server reports at most 1,000 of a chunk.
	OnRejected func(Rejection)
}

// Uploaded is the progress or result of an upload.
type Uploaded struct {
	ID         string // of the upload
	Lines      int64  // sent and confirmed
	Bytes      int64
	Accepted   int64
	Duplicates int64 // were in the group already
	Rejected   int64
	// Rejections are the first KeptRejections rejected lines.
	Rejections []Rejection
}

// AddJobs adds jobs to a group. Line numbers count them from 1.
func (c uploads) AddJobs(ctx context.Context, group string, jobs iter.Seq[Job], u Upload) (Uploaded, error) {
	next, stop := iter.Pull(jobs)
	defer stop()
	return c.upload(ctx, group, u, func(b []byte) ([]byte, int64, error) {
		job, ok := next()
		if !ok {
			return b, 0, io.EOF
		}
		line, err := json.Marshal(job)
		if err != nil {
			return b, 0, fmt.Errorf("job %q: %w", job.ID, err)
		}
		return append(append(b, line...), '\n'), int64(len(line) + 1), nil
	})
}

// AddLines adds the jobs of NDJSON, one a line, as they are.
//
// Jobs are sent in chunks, each until the server confirms it, so no job is lost or added twice however often the
// connection breaks. After an error, the same call with the same Upload.ID continues.
func (c uploads) AddLines(ctx context.Context, group string, r io.Reader, u Upload) (Uploaded, error) {
	lines := newLineReader(r, MaxLine)
	return c.upload(ctx, group, u, func(b []byte) ([]byte, int64, error) {
		b, n, err := lines.append(b)
		if errors.Is(err, errLongLine) {
			err = &LineError{fmt.Sprintf("the line has %d bytes; more than %d are not sent", n, MaxLine)}
		}
		return b, n, err
	})
}

// Source writes the lines of an upload. Append appends the next line to b, with its line end, and returns its length in the source.
// It returns io.EOF at the end. For what is no job, it appends an empty line, which counts, and returns a LineError.
type Source interface {
	Append(b []byte) (line []byte, size int64, err error)
}

// LineError is returned by a Source for a line that is rejected without being sent.
type LineError struct{ Reason string }

func (e *LineError) Error() string { return e.Reason }

// AddSource is AddLines for another source of lines. To continue an upload, it must write the same lines.
func (c uploads) AddSource(ctx context.Context, group string, s Source, u Upload) (Uploaded, error) {
	return c.upload(ctx, group, u, s.Append)
}

// upload sends the lines that next appends, in chunks.
func (c uploads) upload(ctx context.Context, group string, u Upload, next func([]byte) ([]byte, int64, error)) (Uploaded, error) {
	if u.ID == "" {
		u.ID = newID("u-")
	}
	if len(u.ID) > maxUploadID || strings.ContainsFunc(u.ID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Uploaded{}, fmt.Errorf("the upload's ID %q: use 1 to %d printable ASCII characters without blanks", u.ID, maxUploadID)
	}
	sent := Uploaded{ID: u.ID}
	reject := func(r Rejection) {
		if len(sent.Rejections) < KeptRejections {
			sent.Rejections = append(sent.Rejections, r)
		}
		if u.OnRejected != nil {
			u.OnRejected(r)
		}
	}
	var chunk []byte
	for number := int64(0); ; number++ {
		var lines, size int64
		var rejected []Rejection
		var err error
		for chunk = chunk[:0]; lines < ChunkLines && len(chunk) < ChunkBytes; {
			var n int64
			chunk, n, err = next(chunk)
			wrong, bad := errors.AsType[*LineError](err)
			if err != nil && !bad {
				break
			}
			lines++
			size += n
			if bad {
				rejected = append(rejected, Rejection{Line: sent.Lines + lines, Reason: wrong.Reason})
				err = nil
			}
		}
		if err != nil && !errors.Is(err, io.EOF) {
			// An incomplete chunk is not sent: the next attempt would send it whole, which would be another chunk.
			return sent, fmt.Errorf("after line %d: %w", sent.Lines+lines, err)
		}
		if lines > 0 {
			answer, err := c.addChunk(ctx, group, chunkKey(u.ID, number, chunk), chunk)
			if err != nil {
				return sent, err
			}
			for _, r := range rejected {
				reject(r)
			}
			sent.Rejected += int64(len(rejected)) + max(answer.RejectedTotal, int64(len(answer.Rejected)))
			for _, r := range answer.Rejected {
				reject(Rejection{Line: sent.Lines + r.Line, Reason: r.Reason})
			}
			sent.Lines += lines
			sent.Bytes += size
			sent.Accepted += answer.Accepted
			sent.Duplicates += answer.Duplicates
			if u.OnChunk != nil {
				u.OnChunk(sent)
			}
		}
		if errors.Is(err, io.EOF) {
			return sent, nil
		}
	}
}

// addChunk sends a chunk until it is confirmed. A full server may accept a chunk in parts; each part counts as
// progress.
func (c uploads) addChunk(ctx context.Context, group, key string, chunk []byte) (a bulktype.Tally, err error) {
	k := post("v1", "groups", group, "jobs")
	k.body, k.ndjson, k.key = chunk, true, key
	in := int64(0)
	for p := c.newPatience(); ; {
		if err = c.ask(ctx, k, &a); err == nil {
			return a, nil
		}
		if problem, ok := errors.AsType[*Problem](err); ok && problem.Accepted > in {
			in = problem.Accepted
			p.progress()
		}
		if err = p.wait(ctx, err); err != nil {
			return bulktype.Tally{}, err
		}
	}
}

// chunkKey names a chunk by its upload, number and content: if the source changed between two runs, the response to
// the old chunk must not confirm the new one.
func chunkKey(upload string, number int64, chunk []byte) string {
	sum := sha256.Sum256(chunk)
	return upload + "." + strconv.FormatInt(number, 10) + "." + hex.EncodeToString(sum[:8])
}
