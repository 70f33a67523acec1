package admission

import "strings"

// generations limits the places of one account that may have ended within the time that ended tickets are remembered: GENERATIONS of
// lua/lib/account.lua.
const generations = 32

// Of reports whether an id is one of the ids of the account whose first id is base.
func (id ID) Of(base ID) bool {
	return [15]byte(id[:15]) == [15]byte(base[:15]) && id[15]-base[15] < generations
}

func (id ID) generation(n int) ID {
	id[15] += byte(n)
	return id
}

// Places returns the ids that the places of an account have in turn, given the first.
func (id ID) Places() []ID {
	ids := make([]ID, generations)
	for n := range ids {
		ids[n] = id.generation(n)
	}
	return ids
}

// bases returns the first ids of an account by all keys. New places get ids after the first of them.
func (a *Arrival) bases() []ID { return append([]ID{a.ID}, a.Former...) }

// prequeuedAccount finds the ticket of an account that this gateway confirmed in the pre-queue.
func (r *joins) prequeuedAccount(j *joining) (done bool) {
	for _, base := range j.bases() {
		for n := range generations {
			id := base.generation(n)
			k, known := r.memory.get(id, j.now)
			if known && k.standing.State != Waiting {
				continue // this place has ended
			}
			if s, gathers := r.tickets.gatheredBefore(j.snap, Arrival{ID: id, Client: j.Client, Interval: j.Interval}, k); known && gathers {
				j.out.s = s
				return true
			}
			break
		}
	}
	return false
}

// named reads the reason of a reply that names a place: whether it is new, and its id.
func named(reason string) (fresh bool, id ID, ok bool) {
	if reason == "" {
		return false, id, false
	}
	id, ok = toID(reason[1:])
	return strings.HasPrefix(reason, replyNewPlace), id, ok
}
