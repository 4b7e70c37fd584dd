package server

import (
	"container/list"
	"sync"
)

// An lru is a map with a limited number of keys, which keeps the keys that were put last. It is
// safe for concurrent use.
type lru[K comparable, V any] struct {
	mu    sync.Mutex
	max   int
	order *list.List // of *pair, newest first
	index map[K]*list.Element
}

type pair[K comparable, V any] struct {
	key   K
	value V
}

// newLRU returns an lru with at most n keys.
func newLRU[K comparable, V any](n int) *lru[K, V] {
	return &lru[K, V]{max: n, order: list.New(), index: map[K]*list.Element{}}
}

func (l *lru[K, V]) get(k K) (v V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.index[k]; e != nil {
		return e.Value.(*pair[K, V]).value, true
	}
	return v, false
}

func (l *lru[K, V]) put(k K, v V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.index[k]; e != nil {
		e.Value.(*pair[K, V]).value = v
		l.order.MoveToFront(e)
		return
	}
	l.index[k] = l.order.PushFront(&pair[K, V]{k, v})
	if l.order.Len() > l.max {
		delete(l.index, l.order.Remove(l.order.Back()).(*pair[K, V]).key)
	}
}

// remove removes a key and returns its value.
func (l *lru[K, V]) remove(k K) (v V, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.index[k]; e != nil {
		delete(l.index, k)
		return l.order.Remove(e).(*pair[K, V]).value, true
	}
	return v, false
}
