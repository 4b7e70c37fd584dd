package rollout

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/chancery-xds/chancery/revisions"
)

// memory is an engine of one program, which has several that think they are alone.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte
	leases map[string]bool
}

func newMemory() *memory { return &memory{values: map[string][]byte{}, leases: map[string]bool{}} }

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
	if m.leases[name] {
		return nil, nil, revisions.ErrBusy
	}
	m.leases[name] = true
	held, cancel := context.WithCancel(ctx)
	return held, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.leases, name)
		cancel()
	}, nil
}

func (m *memory) Announce(ctx context.Context, key string, values <-chan []byte) error {
	for {
		select {
		case v := <-values:
			m.mu.Lock()
			m.values[key] = v
			m.mu.Unlock()
		case <-ctx.Done():
			return m.Delete(ctx, key)
		}
	}
}

func (m *memory) Announced(ctx context.Context, prefix string, _ int) (map[string][]byte, bool, error) {
	all := map[string][]byte{}
	for k := range m.List(ctx, prefix) {
		all[k], _ = m.Get(ctx, k)
	}
	return all, false, nil
}
