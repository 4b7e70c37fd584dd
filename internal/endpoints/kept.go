package endpoints

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"
)

// A Kept is an engine whose registrations are on the disk of this server, too, as they were told last: a server
// that starts while they cannot be read serves those. It is made by [Keep].
type Kept struct {
	Engine
	disk *Local
	log  *slog.Logger
	wait time.Duration

	mu     sync.Mutex     // guards what follows; held for memory only
	news   map[Key]Change // what the disk does not have yet
	told   bool           // something was
	failed bool           // the disk did, and nothing was written since
}

// Keep returns an engine that keeps in a directory what another one tells. If that has told nothing wait after Watch began,
// what the directory has is told, without leases: nobody could renew them. An empty one is not told. Changes are on the
// disk a second after they were told, and then outlast a loss of power; those that it does not take are tried again.
// One program at a time has the directory. The log is told when either of the two happens; nil: slog.Default().
func Keep(e Engine, dir string, wait time.Duration, log *slog.Logger) (*Kept, error) {
	if log == nil {
		log = slog.Default()
	}
	disk, err := Open(dir, log)
	if err != nil {
		return nil, err
	}
	return &Kept{Engine: e, disk: disk, log: log, wait: wait, news: map[Key]Change{}}, nil
}

// Close ends the use of the directory.
func (k *Kept) Close() error { return k.disk.Close() }

// Watch implements [Engine].
func (k *Kept) Watch(ctx context.Context, tell func(changes []Change, reset bool)) {
	var running sync.WaitGroup
	defer running.Wait()
	var telling sync.Mutex // what comes from the disk is told before the other tells, or never
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	running.Go(func() { k.disk.Watch(ended, func([]Change, bool) {}) }) // it keeps its journal short
	running.Go(func() {
		defer end()
		k.run(ctx, func(last []Change) {
			telling.Lock()
			defer telling.Unlock()
			if k.silent() {
				tell(last, true)
			}
		})
	})
	k.Engine.Watch(ctx, func(changes []Change, reset bool) {
		telling.Lock()
		defer telling.Unlock()
		k.hear(changes, reset)
		tell(changes, reset)
	})
}

func (k *Kept) silent() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.told
}

// run tells what is on the disk if there is nothing else to tell, and writes what was told.
func (k *Kept) run(ctx context.Context, tell func([]Change)) {
	defer k.write()
	late := time.NewTimer(k.wait)
	defer late.Stop()
	next := time.NewTicker(time.Second)
	defer next.Stop()
	for {
		select {
		case <-late.C:
			if last := k.disk.all(); len(last) > 0 && k.silent() {
				k.log.Warn("endpoint store does not answer, serving the endpoints from disk", "registrations", len(last))
				tell(last)
			}
		case <-next.C:
			k.write()
		case <-ctx.Done():
			return
		}
	}
}

// hear notes what is to be written.
func (k *Kept) hear(changes []Change, reset bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if reset {
		is := make(map[Key]bool, len(changes))
		for _, c := range changes {
			is[c.Key] = c.Value != nil
		}
		for _, c := range k.disk.all() {
			if !is[c.Key] {
				k.news[c.Key] = Change{Key: c.Key}
			}
		}
		for key := range k.news {
			if !is[key] {
				k.news[key] = Change{Key: key}
			}
		}
	}
	for _, c := range changes {
		if c.Value != nil && c.ID == "" {
			c.Value = []byte("{}") // whatever it was
		} else if c.Value != nil && !json.Valid(c.Value) {
			continue // what was there before stays, as it does where it is served
		}
		k.news[c.Key] = Change{Key: c.Key, Value: c.Value}
	}
	k.told = true
}

// write has the disk have what was told.
func (k *Kept) write() {
	k.mu.Lock()
	news := k.news
	k.news = map[Key]Change{}
	k.mu.Unlock()
	changes := k.disk.differing(news)
	if len(changes) == 0 {
		return
	}
	err := k.disk.Write(context.Background(), changes)
	k.mu.Lock()
	first := err != nil && !k.failed
	if k.failed = err != nil; err != nil {
		for _, c := range changes {
			if _, newer := k.news[c.Key]; !newer {
				k.news[c.Key] = c
			}
		}
	}
	k.mu.Unlock()
	if first {
		k.log.Error("cannot store registered endpoints on disk: a start without their store would serve older ones", "error", err)
	}
}
