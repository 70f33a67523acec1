package main

import (
	"container/heap"
	"context"
	"sync"
	"time"
)

// agenda hands out visitors when they are due. It stands in for a goroutine and a timer per visitor, so that a hundred
// thousand who wait cost a few hundred bytes each.
type agenda struct {
	mu   sync.Mutex
	due  dueHeap
	wake chan struct{} // capacity 1: the earliest time may have changed
}

type appointment struct {
	at time.Time
	p  *person
}

func newAgenda(size int) *agenda {
	return &agenda{due: make(dueHeap, 0, size), wake: make(chan struct{}, 1)}
}

func (a *agenda) add(p *person, at time.Time) {
	a.mu.Lock()
	heap.Push(&a.due, appointment{at, p})
	first := a.due[0].p == p
	a.mu.Unlock()
	if first {
		select {
		case a.wake <- struct{}{}:
		default:
		}
	}
}

// run sends whoever is due until ctx ends, then closes out.
func (a *agenda) run(ctx context.Context, out chan<- *person) {
	defer close(out)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		a.mu.Lock()
		var p *person
		wait := time.Hour
		if len(a.due) > 0 {
			if wait = time.Until(a.due[0].at); wait <= 0 {
				p = heap.Pop(&a.due).(appointment).p
			}
		}
		a.mu.Unlock()
		if p != nil {
			select {
			case out <- p:
				continue
			case <-ctx.Done():
				return
			}
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-a.wake:
		case <-ctx.Done():
			return
		}
	}
}

type dueHeap []appointment

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *dueHeap) Push(x any)        { *h = append(*h, x.(appointment)) }
func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = appointment{}
	*h = old[:len(old)-1]
	return x
}
