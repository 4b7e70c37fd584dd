package daemon

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cli/storeclient"
	"github.com/chancery-xds/chancery/internal/cluster/dircommit"
	"github.com/chancery-xds/chancery/internal/cluster/peers"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
)

// openCommitter makes the committer of the directory, if there is a directory.
func (d *storeSource) openCommitter(e revisions.Engine) {
	if d.root == "" {
		return
	}
	opts := d.loading.options(&d.services)
	opts.HowToAllow = "chancery reload --allow-mass-delete --admin URL allows it once"
	review := opts.Review
	opts.Review = func(all []dir.Loaded) ([]dir.Loaded, error) {
		if err := d.exposure.Refuse(all); err != nil {
			return nil, err
		}
		return review(all)
	}
	host, _ := os.Hostname()
	d.committer = dircommit.New(e, d.repo.Repository(), d.root, dircommit.Options{
		Log: d.log,
		Dir: opts,
		Noted: func(dircommit.State) {
			if d.replicas.all != nil {
				d.replicas.all.Changed()
			}
		},
		Note: func() revisions.Note {
			return revisions.Note{Author: "chancery serve at " + host, Message: "content of " + d.root, Source: storeclient.GitRevision(d.root)}
		},
	})
}

// storeExposure returns how the connection to the store would expose secrets. It is the zero value if
// the connection does not, or if the flags allow it.
func (c *Config) storeExposure() dirload.Exposure {
	if c.insecureSecrets {
		return dirload.Exposure{}
	}
	if _, etcd, err := c.store.at.Check(); err == nil && c.store.at.PlainText(etcd) {
		return dirload.Exposure{Way: "over the network in plain text, to " + etcd.String(), Remedy: "--store-tls or --store-ca"}
	}
	return dirload.Exposure{}
}

// reloadOnHangup makes the elected server read its directory again at each hangup.
func (d *storeSource) reloadOnHangup(ctx context.Context, hangups <-chan os.Signal) {
	for {
		select {
		case <-hangups:
			if src := d.committer.Source(); src != nil {
				src.Reload()
			}
		case <-ctx.Done():
			return
		}
	}
}

// writer describes, for status, what this server commits to the store.
func (d *storeSource) writer() *api.StoreWriter {
	at := d.committer.State()
	w := &api.StoreWriter{Dir: d.root, Writes: at.Writes, Since: at.Since, Server: d.electedWriter(context.Background(), false).ID,
		Pending: d.trouble.Load() == nil && d.committer.Pending(d.repo.Served().Number)}
	if at.Err != nil {
		w.Error = wiring.Clipped(wiring.ProblemsOf(at.Err))
	}
	return w
}

// electedWriter returns the other server that writes to the store; the zero value: none is known.
// Unless now is true, the answer may be a few seconds old.
func (d *storeSource) electedWriter(ctx context.Context, now bool) peers.About {
	if d.replicas.all == nil || d.committer.State().Writes {
		return peers.About{}
	}
	return d.replicas.all.Writer(ctx, now)
}

// standbyText names the server to which a user must send a reload, because this server does not write
// to the store.
func (d *storeSource) standbyText(ctx context.Context) string {
	w := d.electedWriter(ctx, true)
	if w.ID == "" {
		return cli.StandbyReload + ": ask that one"
	}
	return fmt.Sprintf("%s, %s: ask that one%s", cli.StandbyReload, text.Line(w.ID), text.Prefixed(", by --admin ", text.Line(w.Admin)))
}

// writerText describes, for /readyz, which server commits its directory to the store.
func (d *storeSource) writerText() string {
	if d.committer == nil {
		return ""
	}
	if d.committer.State().Writes {
		return "; this server commits " + d.root + " to it"
	}
	return "; " + cmp.Or(text.Line(d.electedWriter(context.Background(), false).ID), "another server") + " commits its directory to it"
}

// writesSince returns the time since when this server writes to the store; zero: it does not.
func (d *storeSource) writesSince() time.Time {
	if d.committer == nil {
		return time.Time{}
	}
	at := d.committer.State()
	if !at.Writes {
		return time.Time{}
	}
	return at.Since
}
