package client

import (
	"cmp"
	"errors"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/chancery-xds/chancery/internal/lastgood"
	"github.com/chancery-xds/chancery/xds"
)

// FromDisk is the Server of events and statuses of resources that the last run has left
// ([Config.Dir]), and that no server of this one has confirmed yet.
const FromDisk = "disk"

var ofDisk = &said{server: FromDisk}

const (
	// savePause is how often the disk is written to at most.
	savePause = time.Second
	// saveRetry is how long after an error.
	saveRetry = 30 * time.Second
	// lockRetry is how long after another program had the directory it is tried again.
	lockRetry = 5 * time.Second
	// maxShelf is how many bytes are kept of resources that nobody watches, or has watched yet
	// when leftFor has passed since the start.
	maxShelf = 64 << 20
	leftFor  = time.Hour
	// toldPause is how often the log says at most that this is too little.
	toldPause = 10 * time.Minute
)

// A disk keeps the last good resources: those in use, and on a shelf those of names that nobody
// watches now. The loop owns it; a goroutine writes. No version of it is claimed to a server; to a
// delta server its names are stated, so that the server says which are gone.
type disk struct {
	c      *Client
	keeper *lastgood.Keeper
	shelf  shelf
	begun  bool
	until  time.Time // the shelf has no limit for what the last run has left; zero: that is over
	gone   int       // resources that left the shelf since the log said so
	told   time.Time // the log says nothing of it before

	dirty   bool
	next    time.Time             // nothing is written before
	locks   time.Time             // while another program has the directory: when that is tried again
	writing bool                  // the goroutine has something to write
	write   chan *lastgood.Config // one slot, which is empty unless writing; nil: see whether the directory is free
}

// openDisk reads what the last run has left. What cannot be read is no error: then there is nothing.
func openDisk(c *Client, dir string) (*disk, error) {
	k, err := lastgood.Open(dir)
	if err != nil {
		return nil, err
	}
	d := &disk{c: c, keeper: k, write: make(chan *lastgood.Config, 1)}
	switch kept, err := k.Load(); {
	case err == nil:
		for _, t := range kept.Types {
			for _, r := range t.Resources {
				d.shelf.leave(r.Resource)
			}
		}
	case !errors.Is(err, fs.ErrNotExist):
		c.log.Warn("what the last run has left on disk is ignored", slog.Any("error", err))
	}
	if !k.Kept() {
		c.log.Warn("another program keeps its resources in the directory: this one writes none until that ends", slog.String("directory", dir))
	}
	return d, nil
}

// run writes until write is closed.
func (d *disk) run() {
	defer d.keeper.Drop()
	for cfg := range d.write {
		had := d.keeper.Kept()
		err := d.keeper.Lock()
		if err == nil && !had {
			d.c.log.Info("the other program has ended: this one keeps its resources in the directory", slog.String("directory", d.keeper.Dir()))
		}
		if err == nil && cfg != nil {
			err = d.keeper.Save(*cfg)
		}
		d.c.do(func() {
			d.writing = false
			if err != nil && cfg != nil {
				d.dirty, d.next = true, d.c.now.Add(saveRetry)
			}
		})
		if err != nil && had {
			d.c.log.Error("the last good resources are not stored", slog.Any("error", err))
		}
	}
}

// shelve puts what was in use of a name on the shelf.
func (d *disk) shelve(t *xds.Type, e *entry) {
	if d != nil && e.res != nil {
		d.full(d.shelf.put(keep(t, e)))
	}
}

// full logs that the shelf was too small for some resources.
func (d *disk) full(gone int) {
	if d.gone += gone; d.gone > 0 && !d.c.now.Before(d.told) {
		d.c.log.Warn("resources that nobody watches have left the disk: there are too many", slog.Int("resources", d.gone))
		d.gone, d.told = 0, d.c.now.Add(toldPause)
	}
}

// keep is a resource in use, as it is kept.
func keep(t *xds.Type, e *entry) *xds.Resource {
	r := e.res
	return &xds.Resource{Stamp: r.Stamp, Type: t, Body: r.Body, Aliases: r.Aliases, TTL: r.TTL, OnDemand: !e.found}
}

// take takes what the shelf has for a name that is watched now: of a wildcard or a collection all
// that belongs to it. What the client cannot use any more is none.
func (d *disk) take(t *xds.Type, name string) []*xds.Resource {
	if d == nil {
		return nil
	}
	return slices.DeleteFunc(d.shelf.take(t, name), func(r *xds.Resource) bool {
		err := d.c.check(r)
		if err != nil {
			d.c.log.Warn("a resource that the last run has left on disk cannot be used", slog.String("type", t.String()), slog.String("name", r.Name), slog.Any("error", err))
		}
		return err != nil
	})
}

// changed notes that what is in use has changed.
func (d *disk) changed() {
	if d != nil {
		d.dirty = true
	}
}

// step hands what has changed to the goroutine, and returns when it must be called next.
func (d *disk) step(now time.Time) time.Time {
	if d == nil {
		return time.Time{}
	}
	if !d.begun {
		d.begun, d.until, d.locks = true, now.Add(leftFor), now.Add(lockRetry)
	}
	if !d.until.IsZero() && !now.Before(d.until) {
		d.until, d.dirty = time.Time{}, true
		d.full(d.shelf.limit())
	}
	switch {
	case d.writing:
		return d.until
	case !d.keeper.Kept():
		if d.locks.After(now) {
			return earlier(d.locks, d.until)
		}
		d.writing, d.locks = true, now.Add(lockRetry)
		d.write <- nil
		return d.until
	case !d.dirty:
		return d.until
	case d.next.After(now):
		return earlier(d.next, d.until)
	}
	d.dirty, d.writing, d.next = false, true, now.Add(savePause)
	d.write <- d.snapshot(now)
	return d.until
}

// close hands over what has changed since, and lets the goroutine end.
func (d *disk) close() {
	if d == nil {
		return
	}
	if d.dirty {
		d.write <- d.snapshot(d.c.now)
	}
	close(d.write)
}

// snapshot is what is in use, and the shelf.
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
				// What an alias found has an entry of its own only if it was asked for, too.
				if e.res != nil && (name == e.res.Name || t.entries[e.res.Name] == nil) {
					add(t.typ, keep(t.typ, e))
				}
			}
		}
	}
	for _, of := range d.shelf.types {
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
