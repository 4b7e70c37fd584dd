package server

import (
	"container/list"
	"sync"
)

// refusals remembers which nodes have refused a type and accepted none since.
// It outlives the streams: "the next differing state is always sent", also when
// the client comes back and states the version that it kept. It is bounded: the
// oldest are forgotten.
type refusals struct {
	mu    sync.Mutex
	max   int
	order *list.List // of refusal, newest first
	index map[refusal]*list.Element
}

type refusal struct{ node, url string }

func newRefusals(n int) *refusals {
	return &refusals{max: n, order: list.New(), index: map[refusal]*list.Element{}}
}

func (r *refusals) add(node, url string) {
	k := refusal{node, url}
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.index[k]; e != nil {
		r.order.MoveToFront(e)
		return
	}
	r.index[k] = r.order.PushFront(k)
	if r.order.Len() > r.max {
		delete(r.index, r.order.Remove(r.order.Back()).(refusal))
	}
}

func (r *refusals) remove(node, url string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	k := refusal{node, url}
	if e := r.index[k]; e != nil {
		r.order.Remove(e)
		delete(r.index, k)
	}
}

func (r *refusals) has(node, url string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.index[refusal{node, url}] != nil
}
