package api

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"hash"
	"io"
	"net/http"

	"github.com/anteroom/anteroom/bulk/bulktype"
	"github.com/anteroom/anteroom/bulk/store"
	"github.com/anteroom/anteroom/internal/ophttp"
)

// kept is the response to an upload as the store keeps it, with the digest of its body.
type kept struct {
	bulktype.Tally
	Body string `json:"body"`
}

// sentBody hashes a body while it is read.
type sentBody struct {
	io.Reader
	sum hash.Hash
}

func newSentBody(body io.Reader) *sentBody {
	sum := sha256.New()
	return &sentBody{io.TeeReader(body, sum), sum}
}

func (b *sentBody) digest() string { return hex.EncodeToString(b.sum.Sum(nil)[:12]) }

// recall reads the rest of an upload that was already finished and returns the counts of the first time. Other
// content under the same name is refused, since it was never accepted.
func (u *upload) recall(answer []byte) error {
	if err := drain(u.body, -1); err != nil {
		return ophttp.BrokenBody(err)
	}
	var was kept
	if err := json.Unmarshal(answer, &was); err != nil {
		p := ophttp.NewProblem(http.StatusInternalServerError, "internal", "the stored response to this upload is not readable; GET /v1/groups/%s shows the group", u.group)
		p.Cause = err
		return p
	}
	if was.Body != u.body.digest() {
		return ophttp.NewProblem(http.StatusUnprocessableEntity, string(store.CodeChunkReuse),
			"this name (Idempotency-Key, or id) was used for other lines, now in group %s; none of these lines was accepted: send them under another name", u.group)
	}
	u.Tally = was.Tally
	return nil
}
