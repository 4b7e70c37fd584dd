package rollout

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/chancery-xds/chancery/internal/cluster/revisions"
)

// memory is an engine in one process, for several servers.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
	leases map[string]*held
	away   bool          // announcements fail
	lost   chan struct{} // closed: the announcements are lost
}

// A held is a lease and its holder.
type held struct {
	context.Context
	end context.CancelFunc
}

func newMemory() *memory {
	return &memory{values: map[string][]byte{}, leases: map[string]*held{}, lost: make(chan struct{})}
}

func (m *memory) Get(_ context.Context, key string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if v, ok := m.values[key]; ok {
		return v, nil
	}
	return nil, fmt.Errorf("%s: %w", key, revisions.ErrNotFound)
}

func (m *memory) PutIfAbsent(ctx context.Context, key string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.values[key] == nil {
		m.values[key] = value
	}
	return nil
}

func (m *memory) CompareAndSwap(_ context.Context, key string, old, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if is, ok := m.values[key]; ok != (old != nil) || !bytes.Equal(is, old) {
		return fmt.Errorf("%s: %w", key, revisions.ErrConflict)
	}
	m.values[key] = value
	return nil
}

func (m *memory) Delete(_ context.Context, keys ...string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, k := range keys {
		delete(m.values, k)
	}
	return nil
}

func (m *memory) List(_ context.Context, prefix string) iter.Seq2[string, error] {
	m.mu.Lock()
	defer m.mu.Unlock()
	keys := slices.Sorted(maps.Keys(m.values))
	return func(yield func(string, error) bool) {
		for _, k := range keys {
			if strings.HasPrefix(k, prefix) && !yield(k, nil) {
				return
			}
		}
	}
}

func (m *memory) Watch(ctx context.Context, _ string) <-chan struct{} {
	c := make(chan struct{})
	context.AfterFunc(ctx, func() { close(c) })
	return c
}

func (m *memory) Lease(ctx context.Context, name string) (context.Context, func(), error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leases[name] != nil {
		return nil, nil, revisions.ErrBusy
	}
	h := &held{}
	h.Context, h.end = context.WithCancel(ctx)
	m.leases[name] = h
	return h, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if h.end(); m.leases[name] == h {
			delete(m.leases, name)
		}
	}, nil
}

// take ends the lease of its holder, and holds it until free is called.
func (m *memory) take(name string) (free func()) {
	m.mu.Lock()
	if was := m.leases[name]; was != nil {
		was.end()
		delete(m.leases, name)
	}
	m.mu.Unlock()
	_, free, _ = m.Lease(context.Background(), name) // no other server acquires the lease first
	return free
}

func (m *memory) Announce(ctx context.Context, key string, values <-chan []byte) error {
	m.mu.Lock()
	away, lost := m.away, m.lost
	m.mu.Unlock()
	for !away {
		select {
		case v := <-values:
			m.mu.Lock()
			m.values[key] = v
			m.mu.Unlock()
		case <-lost:
			away = true
		case <-ctx.Done():
			return m.Delete(ctx, key)
		}
	}
	return errors.Join(revisions.ErrUnavailable, m.Delete(ctx, key))
}

// lose removes all announcements; with away, new ones fail.
func (m *memory) lose(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.away = away; away {
		close(m.lost)
		m.lost = make(chan struct{})
	}
}

func (m *memory) Announced(ctx context.Context, prefix string, _ int) (map[string][]byte, bool, error) {
	all := map[string][]byte{}
	for k := range m.List(ctx, prefix) {
		all[k], _ = m.Get(ctx, k)
	}
	return all, false, nil
}
