package api

import (
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

const (
	maxJobID = 128 // bytes
)

// parseJob parses a line of a submission. wrong begins with the name of the invalid field. The job's payload aliases
// the line.
func parseJob(line []byte, job *store.Job) (wrong string) {
	*job = store.Job{}
	o, err := ophttp.Object(line)
	if err != nil {
		return err.Error()
	}
	const (
		hasID = 1 << iota
		hasType
		hasPayload
		hasCost
		hasRunAt
		hasExpiresAt
	)
	seen := 0
	ophttp.Members(o, func(name, value []byte) bool {
		bit := 0
		switch string(name) {
		case "id":
			bit = hasID
			job.ID, wrong = jobID(value)
		case "type":
			bit = hasType
			if wrong = setWord(&job.Type, value, maxType, alsoInType); wrong != "" {
				wrong += ": a type has " + ruleType
			}
		case "payload":
			bit = hasPayload
			job.Payload = value
		case "cost":
			bit = hasCost
			if job.Cost, wrong = whole(value, 1, store.MaxCost); wrong != "" {
				wrong += ": a cost is a whole number from 1 to 1000"
			}
		case "run_at":
			bit = hasRunAt
			job.RunAt, wrong = moment(value)
		case "expires_at":
			bit = hasExpiresAt
			job.ExpiresAt, wrong = moment(value)
		default:
			wrong = "is not a field of a job: it has id, type, payload, cost, run_at and expires_at"
		}
		if wrong == "" && seen&bit != 0 {
			wrong = "is given twice"
		}
		seen |= bit
		if wrong != "" {
			wrong = quoteName(name) + " " + wrong
		}
		return wrong == ""
	})
	if wrong == "" && seen&hasExpiresAt != 0 && !job.ExpiresAt.After(job.RunAt) {
		wrong = "expires_at is not later than run_at: the job could never start"
	}
	if wrong == "" && seen&hasPayload == 0 {
		wrong = "payload is missing: every job has one, if only null"
	}
	return wrong
}

// quoteName returns a member's name, quoted unless it is a plain word.
func quoteName(name []byte) string {
	s := ophttp.Shorten(string(name))
	if s != "" && !strings.ContainsFunc(s, func(c rune) bool { return c != '_' && (c < 'a' || c > 'z') }) {
		return s
	}
	return strconv.Quote(s)
}

func jobID(raw []byte) (id, wrong string) {
	const rule = ": an id has 1 to 128 bytes of printable characters, no blanks, and is not . or .."
	if !ophttp.IsText(raw) {
		return "", "is not text" + rule
	}
	id = ophttp.Text(raw)
	if id == "" || len(id) > maxJobID {
		return "", "has a wrong length" + rule
	}
	if id == "." || id == ".." { // a path segment: POST jobs/../cancel would act on the group
		return "", "cannot stand in a path" + rule
	}
	for _, c := range id {
		if c <= ' ' || c > '~' && (!unicode.IsPrint(c) || unicode.IsSpace(c)) || c == utf8.RuneError {
			return "", "has a character that is not allowed" + rule
		}
	}
	return id, ""
}

func moment(raw []byte) (at time.Time, wrong string) {
	if ophttp.IsText(raw) {
		if t, err := time.Parse(time.RFC3339, ophttp.Text(raw)); err == nil {
			return t.UTC(), ""
		}
	}
	return time.Time{}, `is not a time: write RFC 3339 with a zone, as "2026-01-02T15:04:05Z"`
}

// isWord reports whether s has 1 to most letters, digits, characters of ". _ -" or of also.
func isWord(s string, most int, also string) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && c != '.' && c != '_' && c != '-' && strings.IndexByte(also, c) < 0 {
			return false
		}
	}
	return true
}

// lineIDs is the prefix of the ids of an upload's jobs that have none: the same line of the same upload always gets
// the same id.
type lineIDs string

// newLineIDs derives the prefix from the name of the upload within its group. It has 72 bits of a hash: short, since
// the store keeps an id for every job, and long enough that uploads of one group do not collide.
func newLineIDs(upload string) lineIDs {
	sum := sha256.Sum256([]byte(upload))
	return lineIDs(base64.RawURLEncoding.EncodeToString(sum[:9]) + ".")
}

// of returns the id of a line, at most 26 characters up to line 10¹³.
func (p lineIDs) of(line int64) string {
	return string(strconv.AppendInt(append(make([]byte, 0, 26), p...), line, 10))
}
