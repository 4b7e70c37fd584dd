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

const (
	// savePause is how often the disk is written to at most.
	savePause = time.Second
	// saveRetry is how long after an error.
	saveRetry = 30 * time.Second
	// maxShelf is how many bytes are kept of resources that nobody watches.
	maxShelf = 64 << 20
)

// A disk keeps the last good resources: those in use, and on a shelf those of names that nobody
// watches now. The loop owns it; a goroutine writes. None of it is ever claimed to a server.
type disk struct {
	c      *Client
	keeper *lastgood.Keeper
	shelf  map[string]map[string]*xds.Resource // by type URL, name and alias
	bytes  int                                 // of the shelf

	dirty   bool
	next    time.Time            // nothing is written before
	writing bool                 // the goroutine has something to write
	write   chan lastgood.Config // one slot, which is empty unless writing
}

// openDisk reads what the last run has left. What cannot be read is no error: then there is nothing.
func openDisk(c *Client, dir string) (*disk, error) {
	k, err := lastgood.Open(dir)
	if err != nil {
		return nil, err
	}
	d := &disk{c: c, keeper: k, shelf: map[string]map[string]*xds.Resource{}, write: make(chan lastgood.Config, 1)}
	switch kept, err := k.Load(); {
	case err == nil:
		for _, t := range kept.Types {
			for _, r := range t.Resources {
				d.put(r.Resource)
			}
		}
	case !errors.Is(err, fs.ErrNotExist):
		c.log.Warn("what the last run has left on disk is ignored", slog.Any("error", err))
	}
	if !k.Kept() {
		c.log.Warn("another program keeps its resources in the directory: this one writes none", slog.String("directory", dir))
	}
	return d, nil
}

// run writes until write is closed.
func (d *disk) run() {
	defer d.keeper.Drop()
	for cfg := range d.write {
		err := d.keeper.Save(cfg)
		d.c.do(func() {
			d.writing = false
			if err != nil {
				d.dirty, d.next = true, d.c.now.Add(saveRetry)
			}
		})
		if err != nil {
			d.c.log.Error("the last good resources are not stored", slog.Any("error", err))
		}
	}
}

// put puts a resource on the shelf, as far as there is room.
func (d *disk) put(r *xds.Resource) {
	if d.bytes+size(r) > maxShelf {
		return
	}
	of := d.shelf[r.Type.URL]
	if of == nil {
		of = map[string]*xds.Resource{}
		d.shelf[r.Type.URL] = of
	}
	if old := of[r.Name]; old != nil {
		d.drop(old)
	}
	d.bytes += size(r)
	of[r.Name] = r
	for _, a := range r.Aliases {
		of[a] = r
	}
}

// shelve puts what was in use of a name on the shelf.
func (d *disk) shelve(t *xds.Type, e *entry) {
	if d != nil && e.res != nil {
		d.put(keep(t, e))
	}
}

// keep is a resource in use, as it is kept.
func keep(t *xds.Type, e *entry) *xds.Resource {
	r := e.res
	return &xds.Resource{Stamp: r.Stamp, Type: t, Body: r.Body, Aliases: r.Aliases, TTL: r.TTL, OnDemand: !e.found}
}

func size(r *xds.Resource) int { return len(r.Body) + len(r.Name) + 200 }

func (d *disk) drop(r *xds.Resource) {
	d.bytes -= size(r)
	of := d.shelf[r.Type.URL]
	delete(of, r.Name)
	for _, a := range r.Aliases {
		delete(of, a)
	}
}

// take takes what the shelf has for a name that is watched now: of a wildcard or a collection all
// that belongs to it. What the client cannot use any more is none.
func (d *disk) take(t *xds.Type, name string) (list []*xds.Resource) {
	if d == nil {
		return nil
	}
	of := d.shelf[t.URL]
	if r := of[name]; r != nil {
		list = append(list, r)
	}
	if finds(name) {
		for n, r := range of {
			if n == r.Name && !r.OnDemand && (name == xds.Wildcard || t.Collection(n) == name) {
				list = append(list, r)
			}
		}
	}
	for _, r := range list {
		d.drop(r)
	}
	return slices.DeleteFunc(list, func(r *xds.Resource) bool {
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
	switch {
	case d == nil || !d.dirty || d.writing || !d.keeper.Kept():
		return time.Time{}
	case d.next.After(now):
		return d.next
	}
	d.dirty, d.writing, d.next = false, true, now.Add(savePause)
	d.write <- d.snapshot(now)
	return time.Time{}
}

// close hands over what has changed since, and lets the goroutine end.
func (d *disk) close() {
	if d == nil {
		return
	}
	if d.dirty && d.keeper.Kept() {
		d.write <- d.snapshot(d.c.now)
	}
	close(d.write)
}

// snapshot is what is in use, and the shelf.
func (d *disk) snapshot(now time.Time) lastgood.Config {
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
	for _, of := range d.shelf {
		for name, r := range of {
			if name == r.Name {
				add(r.Type, r)
			}
		}
	}
	cfg := lastgood.Config{At: now}
	for _, t := range types {
		slices.SortFunc(t.Resources, func(a, b lastgood.Resource) int { return strings.Compare(a.Name, b.Name) })
		cfg.Types = append(cfg.Types, *t)
	}
	slices.SortFunc(cfg.Types, func(a, b lastgood.Type) int {
		return cmp.Or(cmp.Compare(a.Rank(), b.Rank()), strings.Compare(a.URL, b.URL))
	})
	return cfg
}
