package main

import (
	"context"
	"os"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/adminapi"
	"github.com/chancery-xds/chancery/internal/feed"
	"github.com/chancery-xds/chancery/revisions"
	"github.com/chancery-xds/chancery/source/dir"
)

// openFeed makes what writes the directory to the store, if there is one.
func (d *stored) openFeed(e revisions.Engine) {
	if d.root == "" {
		return
	}
	s := d.serving
	r := &review{empty: s.emptyMissing}
	var stores exposure
	if !s.insecureSecrets {
		r.exposed = exposed(&s.front, &s.rest)
		if _, of, err := s.at.check(); err == nil && s.at.plain(of) {
			stores = exposure{"over the network in plain text, to " + of.String(), "--store-tls or --store-ca"}
		}
	}
	host, _ := os.Hostname()
	d.feed = feed.New(e, d.repo.Repository(), d.root, feed.Options{
		Log: s.log,
		Dir: dir.Options{
			Log: s.log, MaxFile: s.maxFile, FollowLinksOutside: s.followOutside, V2: s.manner.v2, AllowMassDelete: s.allowMassDelete, HowToAllow: "chancery reload --allow-mass-delete --admin URL allows it once",
			Types: s.types, CEL: cel.Compile, Confirm: s.confirm, References: true, Validate: s.validate, Flag: flagOf,
			Review: func(all []dir.Loaded) ([]dir.Loaded, error) {
				if err := stores.refuse(all); err != nil {
					return nil, err
				}
				return r.load(all)
			},
		},
		Note: func() revisions.Note {
			return revisions.Note{Author: "chancery serve at " + host, Message: "what " + d.root + " says", Source: gitRevision(d.root)}
		},
	})
}

// hangs has who writes read its directory again at each hangup.
func (d *stored) hangs(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
			if src := d.feed.Source(); src != nil {
				src.Reload()
			}
		case <-ctx.Done():
			return
		}
	}
}

// writer says what the server writes to the store.
func (d *stored) writer() *adminapi.StoreWriter {
	at := d.feed.State()
	w := &adminapi.StoreWriter{Dir: d.root, Writes: at.Writes, Since: at.Since}
	if at.Err != nil {
		w.Error = clipped(problemsOf(at.Err))
	}
	return w
}
