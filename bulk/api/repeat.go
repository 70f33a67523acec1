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

// kept is the answer of an upload as the store keeps it: with what it was the answer to.
type kept struct {
	bulktype.Tally
	Body string `json:"body"`
}

// sentBody knows at its end what was in it.
type sentBody struct {
	io.Reader
	sum hash.Hash
}

func newSentBody(body io.Reader) *sentBody {
	sum := sha256.New()
	return &sentBody{io.TeeReader(body, sum), sum}
}

func (b *sentBody) digest() string { return hex.EncodeToString(b.sum.Sum(nil)[:12]) }

// recall reads what is left of an upload that is in already, and takes its old answer. Other content under the same name is
// refused: the old answer would say that it is in.
func (u *upload) recall(answer []byte) error {
	if err := drain(u.body, -1); err != nil {
		return ophttp.BrokenBody(err)
	}
	var was kept
	if err := json.Unmarshal(answer, &was); err != nil {
		p := ophttp.NewProblem(http.StatusInternalServerError, "internal", "the kept answer of this upload does not read; GET /v1/groups/%s shows the group", u.group)
		p.Cause = err
		return p
	}
	if was.Body != u.body.digest() {
		return ophttp.NewProblem(http.StatusUnprocessableEntity, string(store.CodeChunkReuse),
			"this name (Idempotency-Key, or id) was used for other lines, which are in group %s; nothing of these was enqueued: send them under another", u.group)
	}
	u.Tally = was.Tally
	return nil
}
