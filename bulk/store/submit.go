package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
)

// MaxAdd bounds the jobs of one AddJobs; MaxAddBytes bounds the sum of their payloads.
const (
	MaxAdd      = 500
	MaxAddBytes = 1 << 20
)

// MaxCost is the highest cost of a job.
const MaxCost = 1000

// Validate sets defaults and returns an error for an invalid job.
func (j *Job) Validate() error {
	if j.Cost == 0 {
		j.Cost = 1
	}
	switch {
	case j.ID == "." || j.ID == "..":
		return refuse(CodeInvalid, "id %q: it cannot be part of a path; use another id", j.ID)
	case j.ID == "" || len(j.ID) > 128 || !utf8.ValidString(j.ID) || strings.ContainsFunc(j.ID, func(r rune) bool { return !unicode.IsGraphic(r) || unicode.IsSpace(r) }):
		return refuse(CodeInvalid, "id %q: use 1 to 128 bytes of printable characters without blanks", j.ID)
	case j.Type != "" && !typeName.MatchString(j.Type):
		return refuse(CodeInvalid, "type %q: use 1 to 64 letters, digits and . _ : / -", j.Type)
	case !j.ExpiresAt.IsZero() && !j.ExpiresAt.After(j.RunAt):
		return refuse(CodeInvalid, "expires_at %s: must be later than the job's first start", j.ExpiresAt.Format(time.RFC3339))
	case j.Cost < 1 || j.Cost > MaxCost:
		return refuse(CodeInvalid, "cost %d: use 1 to %d", j.Cost, MaxCost)
	}
	return nil
}

// ChunkState returns the state of a chunk before its lines are read. key is the chunk's idempotency key.
func (s groupStore) ChunkState(ctx context.Context, group, key string) (ChunkState, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	short, err := s.short(ctx, group)
	if err != nil {
		return ChunkState{}, err
	}
	v, err := s.o.Client.HGet(ctx, s.keys[keyChunks], short+":"+key).Result()
	if errors.Is(err, redis.Nil) {
		return ChunkState{}, nil
	}
	if err != nil {
		return ChunkState{}, fmt.Errorf("%w: %w", ErrStore, err)
	}
	if answer, ok := strings.CutPrefix(v, "="); ok {
		if _, err := s.Group(ctx, group); err != nil { // it is being deleted
			return ChunkState{}, err
		}
		return ChunkState{Done: true, Answer: []byte(answer)}, nil
	}
	return ChunkState{}, nil
}

// short returns a group's short name.
func (s groupStore) short(ctx context.Context, group string) (string, error) {
	short, err := s.o.Client.HGet(ctx, s.keys[keyNames_], group).Result()
	if errors.Is(err, redis.Nil) {
		return "", groupRefusal("not_found", group, nil)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrStore, err)
	}
	return short, nil
}

// AddJobs adds up to MaxAdd jobs to a group in order, all or none of them. Repeated with a chunk key, it changes
// nothing.
func (s groupStore) AddJobs(ctx context.Context, group string, c Chunk, jobs []Job) (Added, error) {
	if len(jobs) > MaxAdd {
		return Added{}, fmt.Errorf("AddJobs takes at most %d jobs, got %d", MaxAdd, len(jobs))
	}
	if len(c.Key) > 200 || strings.ContainsAny(c.Key, "\n\x00") {
		return Added{}, refuse(CodeChunkReuse, "Idempotency-Key: at most 200 bytes, no line ends")
	}
	for i := range jobs {
		if err := jobs[i].Validate(); err != nil {
			return Added{}, err
		}
	}
	args := make([]any, 0, 11+2*len(jobs))
	args = append(args, group, c.Key, c.Offset, flag(c.Last), c.Answer, c.MaxPending, c.Whole, sinceEpoch(c.Created), c.elsewhere, c.Trace.word(), jobWords(jobs))
	for i := range jobs {
		args = append(args, jobs[i].ID, jobs[i].Payload)
	}
	r, err := s.write(ctx, "jobs_add", args...)
	if err != nil {
		return Added{}, err
	}
	switch reason := r.refusal(); reason {
	case "":
	case "done":
		return Added{}, &ChunkDone{Answer: []byte(r.string(1))}
	case "replaced":
		return Added{}, Replaced(group)
	default:
		return Added{}, groupRefusal(reason, group, r)
	}
	a := Added{Accepted: r.int(0), Before: r.int(1), Done: r.int(2) == 1, Duplicate: make([]bool, len(jobs))}
	for i := 3; i < len(r); i++ {
		a.Duplicate[r.int(i)] = true
		a.Duplicates++
	}
	return a, nil
}

// jobWords returns the argument words of jobs_add. A job whose words are those of the job before it has an empty line, or, at the end, none.
func jobWords(jobs []Job) []byte {
	var words []byte
	same := 0
	for i := range jobs {
		j := &jobs[i]
		if i > 0 {
			if b := &jobs[i-1]; j.Type == b.Type && j.Cost == b.Cost && j.RunAt.Equal(b.RunAt) && j.ExpiresAt.Equal(b.ExpiresAt) {
				same++
				continue
			}
		}
		for ; same > 0; same-- {
			words = append(words, '\n')
		}
		words = append(words, cmp.Or(j.Type, "-")...)
		for _, n := range [...]int64{int64(j.Cost), sinceEpoch(j.RunAt), sinceEpoch(j.ExpiresAt)} {
			words = strconv.AppendInt(append(words, ' '), n, 10)
		}
		words = append(words, '\n')
	}
	return words
}

// Replaced returns the refusal of jobs for a group that was deleted, and whose id a later group has.
func Replaced(group string) error {
	return refuse(CodeNotFound, "group %q was created at another time than created_at: the one that was meant is deleted", group)
}

// ChunkDone is returned when a chunk with this key is complete already. Answer is the response of the first time.
type ChunkDone struct{ Answer []byte }

func (*ChunkDone) Error() string { return "this chunk is in already" }
