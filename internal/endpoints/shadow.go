package endpoints

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/chancery-xds/chancery/internal/faults"
)

// A DiskShadow is an engine with a copy of its registrations on the disk of this server. A server that
// starts while the engine cannot be read serves the copy. It is made by [NewDiskShadow].
type DiskShadow struct {
	Engine
	disk *Local
	log  *slog.Logger
	wait time.Duration

	mu       sync.Mutex     // guards the fields below; held for memory only
	news     map[Key]Change // changes that the disk does not have yet
	reported bool           // the engine has reported something
}

// NewDiskShadow returns an engine that copies the registrations of another engine to a directory. If that
// engine reports nothing within wait after Watch began, the copy is reported, unless it is empty. Its
// registrations have no leases, since no client could renew them.
//
// Changes are written to the disk within a second, and then survive a loss of power. Failed writes are
// tried again. One program at a time can use the directory. Failures and the use of the copy are logged;
// a nil log is slog.Default().
func NewDiskShadow(e Engine, dir string, wait time.Duration, log *slog.Logger) (*DiskShadow, error) {
	if log == nil {
		log = slog.Default()
	}
	disk, err := Open(dir, log)
	if err != nil {
		return nil, err
	}
	return &DiskShadow{Engine: e, disk: disk, log: log, wait: wait, news: map[Key]Change{}}, nil
}

// Restore implements [Restorer].
func (k *DiskShadow) Restore(present func() []Change) {
	if e, ok := k.Engine.(Restorer); ok {
		e.Restore(present)
	}
}

// Faults implements [Faulty].
func (k *DiskShadow) Faults() []faults.Fault {
	all := k.disk.Faults()
	if e, ok := k.Engine.(Faulty); ok {
		all = append(all, e.Faults()...)
	}
	return all
}

// Close ends the use of the directory.
func (k *DiskShadow) Close() error { return k.disk.Close() }

// Watch implements [Engine].
func (k *DiskShadow) Watch(ctx context.Context, report func(changes []Change, reset bool)) {
	var running sync.WaitGroup
	defer running.Wait()
	var telling sync.Mutex // the copy is reported before the other engine reports, or never
	ended, end := context.WithCancel(context.WithoutCancel(ctx))
	running.Go(func() { k.disk.Watch(ended, func([]Change, bool) {}) }) // it keeps its journal short
	running.Go(func() {
		defer end()
		k.run(ctx, func(last []Change) {
			telling.Lock()
			defer telling.Unlock()
			if k.silent() {
				report(last, true)
			}
		})
	})
	k.Engine.Watch(ctx, func(changes []Change, reset bool) {
		telling.Lock()
		defer telling.Unlock()
		k.hear(changes, reset)
		report(changes, reset)
	})
}

func (k *DiskShadow) silent() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.reported
}

// run reports the copy if the engine is silent, and writes changes to the disk.
func (k *DiskShadow) run(ctx context.Context, report func([]Change)) {
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
				report(last)
			}
		case <-next.C:
			k.write()
		case <-ctx.Done():
			return
		}
	}
}

// hear records the changes to write.
func (k *DiskShadow) hear(changes []Change, reset bool) {
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
			c.Value = []byte("{}") // the content does not matter
		} else if c.Value != nil && !json.Valid(c.Value) {
			continue // an invalid value does not replace the earlier one, here and in the Set
		}
		k.news[c.Key] = Change{Key: c.Key, Value: c.Value}
	}
	k.reported = true
}

// write writes the recorded changes to the disk.
func (k *DiskShadow) write() {
	k.mu.Lock()
	news := k.news
	k.news = map[Key]Change{}
	k.mu.Unlock()
	changes := k.disk.differing(news)
	if len(changes) == 0 {
		return
	}
	if err := k.disk.Write(context.Background(), changes); err == nil {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, c := range changes {
		if _, newer := k.news[c.Key]; !newer {
			k.news[c.Key] = c
		}
	}
}
