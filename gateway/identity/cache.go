package identity

import (
	"crypto/sha256"
	"encoding/binary"
	"sync/atomic"

	"github.com/anteroom/anteroom/token"
)

// cache remembers good tokens, for a poll every few seconds costs a signature otherwise. A table of fixed size: who comes
// to a taken place takes it. The zero value is ready.
type cache struct {
	slots [1 << 15]atomic.Pointer[entry]
}

// entry is a token that was good, by its hash: by these keys, for these rules. Immutable.
type entry struct {
	sum     [32]byte
	keys    *token.AccountKeys
	rules   *token.AccountRules
	account string
	expires int64
}

// slot is where a token is or will be remembered.
type slot struct {
	at  *atomic.Pointer[entry]
	sum [32]byte
}

func (c *cache) slot(raw []byte) slot {
	sum := sha256.Sum256(raw)
	return slot{&c.slots[binary.LittleEndian.Uint32(sum[:])%uint32(len(c.slots))], sum}
}

func (s *slot) look(keys *token.AccountKeys, rules *token.AccountRules, now int64) (account string, ok bool) {
	e := s.at.Load()
	if e == nil || e.sum != s.sum || e.keys != keys || e.rules != rules || now >= e.expires {
		return "", false
	}
	return e.account, true
}

func (s *slot) keep(keys *token.AccountKeys, rules *token.AccountRules, account string, expires int64) {
	s.at.Store(&entry{s.sum, keys, rules, account, expires})
}
