package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cluster/dircommit"
	"github.com/chancery-xds/chancery/internal/cluster/peers"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
)

// openFeed makes what writes the directory to the store, if there is one.
func (d *stored) openFeed(e revisions.Engine) {
	if d.root == "" {
		return
	}
	s := d.serving
	r := &review{empty: s.emptyMissing}
	var stores dirload.Exposure
	if !s.insecureSecrets {
		r.exposed = exposed(&s.front, &s.rest)
		if _, of, err := s.at.Check(); err == nil && s.at.PlainText(of) {
			stores = dirload.Exposure{Way: "over the network in plain text, to " + of.String(), Mend: "--store-tls or --store-ca"}
		}
	}
	host, _ := os.Hostname()
	d.feed = dircommit.New(e, d.repo.Repository(), d.root, dircommit.Options{
		Log: s.log,
		Dir: dir.Options{
			Log: s.log, MaxFile: s.maxFile, FollowLinksOutside: s.followOutside, V2: s.manner.v2, AllowMassDelete: s.allowMassDelete, HowToAllow: "chancery reload --allow-mass-delete --admin URL allows it once",
			Types: s.types, CEL: cel.Compile, Confirm: s.confirm, References: true, Validate: s.validate, Flag: dirload.FlagOfOption,
			Review: func(all []dir.Loaded) ([]dir.Loaded, error) {
				if err := stores.Refuse(all); err != nil {
					return nil, err
				}
				return r.load(all)
			},
		},
		Noted: func(dircommit.State) {
			if s.replicas.all != nil {
				s.replicas.all.Changed()
			}
		},
		Note: func() revisions.Note {
			return revisions.Note{Author: "chancery serve at " + host, Message: "what " + d.root + " says", Source: storeclient.GitRevision(d.root)}
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
func (d *stored) writer() *api.StoreWriter {
	at := d.feed.State()
	w := &api.StoreWriter{Dir: d.root, Writes: at.Writes, Since: at.Since, Server: d.elected(context.Background(), false).ID}
	if at.Err != nil {
		w.Error = clipped(problemsOf(at.Err))
	}
	return w
}

// elected is the other server that writes, as was known a few seconds ago or is now; the zero value: none is known.
func (d *stored) elected(ctx context.Context, now bool) peers.About {
	if d.replicas.all == nil || d.feed.State().Writes {
		return peers.About{}
	}
	return d.replicas.all.Writer(ctx, now)
}

// standsBy says who writes, for who asks this server to read its directory.
func (d *stored) standsBy(ctx context.Context) string {
	w := d.elected(ctx, true)
	if w.ID == "" {
		return cli.StandbyReload + ": ask that one"
	}
	return fmt.Sprintf("%s, %s: ask that one%s", cli.StandbyReload, text.Line(w.ID), cli.Prefixed(", by --admin ", text.Line(w.Admin)))
}

// writes says for who asks about readiness who writes the directory to the store.
func (d *stored) writes() string {
	if d.feed == nil {
		return ""
	}
	if d.feed.State().Writes {
		return "; this server writes to it what " + d.root + " says"
	}
	return "; " + cmp.Or(text.Line(d.elected(context.Background(), false).ID), "another server") + " writes to it what its directory says"
}

// writing is since when this server writes; zero: it does not.
func (d *stored) writing() time.Time {
	if d.feed == nil {
		return time.Time{}
	}
	at := d.feed.State()
	if !at.Writes {
		return time.Time{}
	}
	return at.Since
}
