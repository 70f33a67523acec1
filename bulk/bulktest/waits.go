package bulktest

import (
	"cmp"
	"container/heap"
)

// wait is a job that is not ready, in a heap by when it is due. One that has left in another way stays until its time.
type wait struct {
	due int64
	job *job
}

func (w wait) stale() bool { return w.job.state != nonReady || w.job.due != w.due }

type waits []wait

func (w waits) Len() int { return len(w) }
func (w waits) Less(i, k int) bool {
	return cmp.Or(cmp.Compare(w[i].due, w[k].due), cmp.Compare(w[i].job.key(), w[k].job.key())) < 0
}
func (w waits) Swap(i, k int) { w[i], w[k] = w[k], w[i] }
func (w *waits) Push(x any)   { *w = append(*w, x.(wait)) }
func (w *waits) Pop() any {
	last := len(*w) - 1
	x := (*w)[last]
	*w = (*w)[:last]
	return x
}

// wait puts a job among the non-ready.
func (m *Model) wait(j *job, due int64) {
	j.state, j.due = nonReady, due
	j.g.waits++
	j.g.t.nonReady++
	heap.Push(&m.waits, wait{due, j})
}

func (m *Model) unwait(j *job) {
	j.g.waits--
	j.g.t.nonReady--
}
