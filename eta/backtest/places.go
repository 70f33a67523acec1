package backtest

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

type visitor struct {
	order    int64
	joined   float64 // s
	leaves   float64 // s; 0: never
	silent   bool
	checked  float64 // s: when the store last checked a silent visitor
	held     float64 // s: when a silent visitor counts as absent
	noShow   bool
	in       bool // in the queue
	followed int  // index of the account; -1: none
}

// places are all visitors by order, with those in the queue counted in a Fenwick tree.
type places struct {
	all     []visitor
	tree    []int64
	start   int // index before which nobody is in the queue
	waiting int64
}

// join appends a visitor.
func (p *places) join(v visitor) {
	i := len(p.all)
	p.all = append(p.all, v)
	if len(p.tree) <= i+1 {
		p.tree = make([]int64, len(p.tree)+max(1024, len(p.tree)))
		for j := range p.all[:i] {
			if p.all[j].in {
				p.add(j, 1)
			}
		}
	}
	p.add(i, 1)
	p.waiting++
}

// remove takes a visitor out of the queue.
func (p *places) remove(i int) {
	p.all[i].in = false
	p.add(i, -1)
	p.waiting--
}

func (p *places) add(i int, n int64) {
	for i++; i < len(p.tree); i += i & -i {
		p.tree[i] += n
	}
}

// before counts the visitors in the queue among the first i.
func (p *places) before(i int) (n int64) {
	for ; i > 0; i -= i & -i {
		n += p.tree[i]
	}
	return n
}

// ahead counts the visitors in the queue before an order.
func (p *places) ahead(order int64) int64 {
	i, _ := slices.BinarySearchFunc(p.all, order, func(v visitor, o int64) int { return cmp.Compare(v.order, o) })
	return p.before(i)
}

// at returns the index of the visitor with that many ahead; without such a visitor, the number of all.
func (p *places) at(ahead int64) int {
	i, step := 0, 1
	for step*2 < len(p.tree) {
		step *= 2
	}
	for ; step > 0; step /= 2 { // the largest i of which no more than ahead are among the first i
		if i+step < len(p.tree) && p.tree[i+step] <= ahead {
			i += step
			ahead -= p.tree[i]
		}
	}
	return min(i, len(p.all))
}

// random returns the index of a visitor in the queue, which must not be empty.
func (p *places) random(rng *rand.Rand) int {
	i := p.start + rng.IntN(len(p.all)-p.start)
	for !p.all[i].in {
		if i++; i == len(p.all) {
			i = p.start
		}
	}
	return i
}

// first returns the visitor at the front of the queue, nil if it is empty.
func (p *places) first() *visitor {
	if p.waiting == 0 {
		return nil
	}
	for !p.all[p.start].in {
		p.start++
	}
	return &p.all[p.start]
}
