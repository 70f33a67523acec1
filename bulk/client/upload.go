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
	// ChunkLines and ChunkBytes end a chunk, whichever comes first.
	ChunkLines = 5000
	ChunkBytes = 4 << 20
	// MaxLine is the longest line that is sent; a longer one is rejected here. No server's limits.line is higher.
	MaxLine = 1 << 20
	// KeptRejections is how many rejected lines an Uploaded lists.
	KeptRejections = 1000
	maxUploadID    = 64
)

// Job is one job of a group.
type Job struct {
	ID      string          `json:"id,omitempty"`   // unique in its group; empty: made from the upload's id and the line
	Type    string          `json:"type,omitempty"` // empty: the group's
	Payload json.RawMessage `json:"payload"`
	Cost    int64           `json:"cost,omitempty"` // of the rates, 1…1,000; 0 means 1
	RunAt   time.Time       `json:"run_at,omitzero"`
}

// Upload says how jobs are added.
type Upload struct {
	// ID names the upload. The same jobs sent to the same group under the same ID again are the same upload: what is in
	// already is not added twice, also where jobs have no ids of their own. 1…64 printable ASCII characters without blanks;
	// empty: one is drawn, for this call alone.
	ID string
	// OnChunk is told after each chunk how far the upload is.
	OnChunk func(Uploaded)
	// OnRejected is told of each line that was not taken; of a chunk the server names 1,000 at most.
	OnRejected func(Rejection)
}

// Uploaded is how far an upload is, or what became of it.
type Uploaded struct {
	ID         string // of the upload
	Lines      int64  // read and answered
	Bytes      int64
	Accepted   int64
	Duplicates int64 // were in the group already
	Rejected   int64
	// Rejections are the first KeptRejections lines that were not taken.
	Rejections []Rejection
}

// AddJobs adds jobs to a group; line numbers count them from 1.
func (c *Client) AddJobs(ctx context.Context, group string, jobs iter.Seq[Job], u Upload) (Uploaded, error) {
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

// AddLines adds the jobs of NDJSON, one a line, as they stand.
//
// Jobs go in chunks, each of which is sent until it is answered, so nothing is lost and nothing comes in twice however often the
// connection breaks. On an error the Uploaded says how far it came; the same call with the same Upload.ID goes on.
func (c *Client) AddLines(ctx context.Context, group string, r io.Reader, u Upload) (Uploaded, error) {
	lines := newLineReader(r, MaxLine)
	return c.upload(ctx, group, u, lines.append)
}

// upload sends what next appends, a line at a time, in chunks. next returns how many bytes of the source the line had.
func (c *Client) upload(ctx context.Context, group string, u Upload, next func([]byte) ([]byte, int64, error)) (Uploaded, error) {
	if u.ID == "" {
		u.ID = newID("u-")
	}
	if len(u.ID) > maxUploadID || strings.ContainsFunc(u.ID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return Uploaded{}, fmt.Errorf("the upload's ID %q: want 1 to %d printable ASCII characters without blanks", u.ID, maxUploadID)
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
		var long []Rejection
		var err error
		for chunk = chunk[:0]; lines < ChunkLines && len(chunk) < ChunkBytes; {
			var n int64
			if chunk, n, err = next(chunk); err != nil && !errors.Is(err, errLongLine) {
				break
			}
			lines++
			size += n
			if err != nil {
				long = append(long, Rejection{Line: sent.Lines + lines, Reason: fmt.Sprintf("the line has %d bytes; more than %d are not sent", n, MaxLine)})
			}
		}
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, errLongLine) {
			// The part of a chunk that could be read is not sent: it would be another chunk than the whole one of the next try.
			return sent, fmt.Errorf("after line %d: %w", sent.Lines+lines, err)
		}
		if lines > 0 {
			answer, err := c.addChunk(ctx, group, chunkKey(u.ID, number, chunk), chunk)
			if err != nil {
				return sent, err
			}
			for _, r := range long {
				reject(r)
			}
			sent.Rejected += int64(len(long)) + max(answer.RejectedTotal, int64(len(answer.Rejected)))
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

// addChunk sends a chunk until it is answered. A server that is full takes it bit by bit, and as long as it does, patience lasts.
func (c *Client) addChunk(ctx context.Context, group, key string, chunk []byte) (a bulktype.Tally, err error) {
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

// chunkKey names a chunk by the upload, its number and what is in it: when the source was changed between two runs, the answer
// to the old chunk must not stand for the new one.
func chunkKey(upload string, number int64, chunk []byte) string {
	sum := sha256.Sum256(chunk)
	return upload + "." + strconv.FormatInt(number, 10) + "." + hex.EncodeToString(sum[:8])
}
