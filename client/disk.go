package client

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/wire"
	"github.com/chancery-xds/chancery/xds"
)

// FromDisk is the Server of events and statuses of resources that the previous run stored
// ([Config.Dir]) and that no server has confirmed since.
const FromDisk = "disk"

var diskOrigin = &origin{server: FromDisk}

const (
	// savePause is the shortest time between two writes.
	savePause = time.Second
	// saveRetry is the wait after a failed write.
	saveRetry = 30 * time.Second
	// lockRetry is the time between two attempts to lock a directory that another program has locked.
	lockRetry = 5 * time.Second
	// maxUnwatched limits the resources that are kept without a watch, in bytes. A quarter of Config.Held
	// does, too. Resources of the previous run count after lastRunGrace.
	maxUnwatched = 64 << 20
	lastRunGrace = time.Hour
	// dropLogPause is the shortest time between two log lines about resources dropped by this limit.
	dropLogPause = 10 * time.Minute
)

// A disk stores the last good resources: resources in use, and resources without a watch. The
// client's loop owns the disk; a separate goroutine writes the files. The client does not send the
// stored versions to a server. It sends the names to a delta server, which then reports the removed
// resources.
type disk struct {
	c          *Client
	keeper     *lastgood.Keeper
	unwatched  unwatched
	started    bool
	graceEnds  time.Time // until then, resources of the previous run do not count towards the limit; zero: it has passed
	dropped    int       // resources dropped since the last log line about dropped resources
	quietUntil time.Time // no such log line before this time

	dirty     bool
	nextWrite time.Time             // no write before this time
	nextLock  time.Time             // the next attempt to lock the directory, while another program has it
	writing   bool                  // the goroutine has a task
	write     chan *lastgood.Config // one slot, empty unless writing; nil: only try to lock the directory
}

// openDisk reads the resources that the previous run stored. If they cannot be read, it logs this and
// starts without them.
func openDisk(c *Client, dir string) (*disk, error) {
	k, err := lastgood.Open(dir)
	if err != nil {
		return nil, err
	}
	d := &disk{c: c, keeper: k, write: make(chan *lastgood.Config, 1)}
	if held := c.cfg.Held.Bytes; held > 0 {
		d.unwatched.most = min(maxUnwatched, held/4)
	}
	switch kept, err := k.Load(); {
	case err == nil:
		for _, t := range kept.Types {
			for _, r := range t.Resources {
				d.unwatched.addFromLastRun(r.Resource)
			}
		}
	case !errors.Is(err, fs.ErrNotExist):
		c.log.Warn("cannot read the stored resources, starting without them", slog.Any("error", err))
	}
	if !k.Storing() {
		c.log.Warn("resource directory is locked by another program, storing nothing", slog.String("directory", dir))
	}
	return d, nil
}

// run writes until write is closed.
func (d *disk) run() {
	defer d.keeper.Release()
	for cfg := range d.write {
		had := d.keeper.Storing()
		err := d.keeper.Lock()
		if err == nil && !had {
			d.c.log.Info("resource directory is unlocked, storing resources again", slog.String("directory", d.keeper.Dir()))
		}
		if err == nil && cfg != nil {
			err = d.keeper.Save(*cfg)
		}
		d.c.do(func() {
			d.writing = false
			if err != nil && cfg != nil {
				d.dirty, d.nextWrite = true, d.c.now.Add(saveRetry)
			}
		})
		if err != nil && had {
			d.c.log.Error("cannot store the last good resources", slog.Any("error", err))
		}
	}
}

// keepUnwatched keeps the resource of an entry that is about to be forgotten.
func (d *disk) keepUnwatched(t *xds.Type, e *entry) {
	if d != nil && e.res != nil {
		d.logDropped(d.unwatched.put(toStore(t, e)))
	}
}

// logDropped logs that resources were dropped because of the limit.
func (d *disk) logDropped(gone int) {
	d.dropped += gone
	if d.dropped > 0 && !d.c.now.Before(d.quietUntil) {
		d.c.log.Warn("too many unwatched resources, dropped the oldest from the disk", slog.Int("resources", d.dropped))
		d.dropped, d.quietUntil = 0, d.c.now.Add(dropLogPause)
	}
}

// toStore returns the resource of an entry in the form that is stored.
func toStore(t *xds.Type, e *entry) *xds.Resource {
	r := e.res
	return &xds.Resource{Stamp: r.Stamp, Type: t, Body: r.Body, Aliases: r.Aliases, TTL: r.TTL, OnDemand: !e.viaGlob}
}

// takeUnwatched removes and returns the stored resource of a newly watched name. For a wildcard or
// a collection, it takes all matching resources. Unusable resources are left out.
func (d *disk) takeUnwatched(t *xds.Type, name string) []*xds.Resource {
	if d == nil {
		return nil
	}
	return slices.DeleteFunc(d.unwatched.take(t, name), func(r *xds.Resource) bool {
		_, err := wire.ResourceName(t, r.Name, r.Body) // an earlier version may have had other rules (CLI-15)
		if err == nil {
			err = d.c.check(r)
		}
		if err != nil {
			d.c.log.Warn("stored resource is not usable", slog.String("type", t.String()), slog.String("name", r.Name), slog.Any("error", err))
		}
		return err != nil
	})
}

// changed records that resources in use have changed.
func (d *disk) changed() {
	if d != nil {
		d.dirty = true
	}
}

// step gives changed resources to the goroutine. It returns the time of the next call.
func (d *disk) step(now time.Time) time.Time {
	if d == nil {
		return time.Time{}
	}
	if !d.started {
		d.started, d.graceEnds, d.nextLock = true, now.Add(lastRunGrace), now.Add(lockRetry)
	}
	if !d.graceEnds.IsZero() && !now.Before(d.graceEnds) {
		d.graceEnds, d.dirty = time.Time{}, true
		d.logDropped(d.unwatched.limitLastRun())
	}
	switch {
	case d.writing:
		return d.graceEnds
	case !d.keeper.Storing():
		if d.nextLock.After(now) {
			return earlier(d.nextLock, d.graceEnds)
		}
		d.writing, d.nextLock = true, now.Add(lockRetry)
		d.write <- nil
		return d.graceEnds
	case !d.dirty:
		return d.graceEnds
	case d.nextWrite.After(now):
		return earlier(d.nextWrite, d.graceEnds)
	}
	d.dirty, d.writing, d.nextWrite = false, true, now.Add(savePause)
	d.write <- d.snapshot(now)
	return d.graceEnds
}

// close gives the last changes to the writing goroutine, which then ends.
func (d *disk) close() {
	if d == nil {
		return
	}
	if d.dirty {
		d.write <- d.snapshot(d.c.now)
	}
	close(d.write)
}

// snapshot returns the resources in use and those without a watch.
func (d *disk) snapshot(now time.Time) *lastgood.Config {
	types := map[string]*lastgood.Type{}
	add := func(t *xds.Type, r *xds.Resource) {
		of := types[t.URL]
		if of == nil {
			of = &lastgood.Type{Type: t}
			types[t.URL] = of
		}
		of.Resources = append(of.Resources, lastgood.Resource{Resource: r})
	}
	for _, a := range d.c.authorities {
		for _, t := range a.tables {
			for name, e := range t.entries {
				// A resource found by its alias has an entry of its own only if its name was asked for, too.
				if e.res != nil && (name == e.res.Name || t.entries[e.res.Name] == nil) {
					add(t.typ, toStore(t.typ, e))
				}
			}
		}
	}
	for _, of := range d.unwatched.types {
		for _, p := range of.names {
			add(p.Type, p.Resource)
		}
	}
	cfg := &lastgood.Config{At: now}
	for _, t := range types {
		slices.SortFunc(t.Resources, func(a, b lastgood.Resource) int { return strings.Compare(a.Name, b.Name) })
		cfg.Types = append(cfg.Types, *t)
	}
	slices.SortFunc(cfg.Types, func(a, b lastgood.Type) int {
		return cmp.Or(cmp.Compare(a.Rank(), b.Rank()), strings.Compare(a.URL, b.URL))
	})
	return cfg
}
