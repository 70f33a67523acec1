package main

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"net/http"
	"strconv"
)

// prove requests a challenge and solves it on one core. It returns an empty string if the room requires no proof.
func (f *farm) prove(ctx context.Context, address string) (string, error) {
	a, err := f.ask(ctx, http.MethodGet, "/.waiting-room/"+f.room+"/challenge", address, nil, "")
	if err != nil {
		return "", err
	}
	c := &a.body
	if a.code != http.StatusOK || c.Challenge == "" {
		return "", nil
	}
	select {
	case f.solving <- struct{}{}:
		defer func() { <-f.solving }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	number, err := solve(ctx, c.Challenge, c.Salt, c.MaxNumber)
	if err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"algorithm":%q,"challenge":%q,"number":%d,"salt":%q,"signature":%q}`,
		c.Algorithm, c.Challenge, number, c.Salt, c.Signature)), nil
}

func solve(ctx context.Context, challenge, salt string, most int64) (int64, error) {
	want, err := hex.DecodeString(challenge)
	if err != nil || len(want) != sha256.Size {
		return 0, fmt.Errorf("%q is not a challenge", challenge)
	}
	target, text := [sha256.Size]byte(want), append(make([]byte, 0, len(salt)+20), salt...) // with room for the digits
	for n := range most + 1 {
		if n&0xffff == 0 && ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if sha256.Sum256(strconv.AppendInt(text[:len(salt)], n, 10)) == target {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no number up to %d solves the challenge", most)
}
