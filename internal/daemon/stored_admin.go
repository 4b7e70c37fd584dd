package daemon

import (
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cluster/dircommit"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	internalsecret "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/source/dir"
)

// revisionsOf returns the part of the admin API for the store. It returns nil without a store.
func revisionsOf(src source) *admin.Revisions {
	d, ok := src.(*storeSource)
	if !ok {
		return nil
	}
	finder := internalsecret.NewFinder(d.types)
	var reviewing sync.Mutex // allows one review at a time, because each needs memory
	return &admin.Revisions{
		Repo:  d.repo.Repository(),
		Write: d.flags.write,
		Show: func(url string, body []byte) ([]byte, bool) {
			m, whole := finder.Shown(url, body)
			if whole {
				return body, true
			}
			// For an unknown type the finder returns an empty message of another type.
			if m == nil || !strings.HasSuffix(url, "/"+string(m.ProtoReflect().Descriptor().FullName())) {
				return nil, false
			}
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				return nil, false
			}
			return b, false
		},
		Review: func(next *revisions.Snapshot, restored bool) (problems, warnings []string) {
			reviewing.Lock()
			defer reviewing.Unlock()
			quiet := d.dirView.Scratch(d.options(slog.New(slog.DiscardHandler)))
			if err := quiet.Restore(dircommit.Config(next, time.Now())); err != nil {
				return problemsOf(err), nil
			}
			warnings = dirload.Warnings(quiet)
			if restored { // apply finds these in the files
				warnings = append(warnings, dirload.Refusable(quiet)...)
			}
			return nil, warnings
		},
		Steering: rollout.Steering{Engine: d.engine, Repo: d.repo.Repository()},
		Done: func(what, author, message string) {
			d.log.Info("change of the store was made", "what", what, "author", author, "message", message)
			d.view.tracker.Note(api.Event{Kind: "store", Author: author, Message: message, Text: byText(what, author, message)})
		},
		Refused: func(what, author, message string, err error) {
			d.log.Warn("change of the store was refused", "what", what, "author", author, "message", message, "error", err)
			d.view.tracker.Note(refusedText(what, author, message, err))
		},
	}
}

// options returns the options of dirView.
func (d *storeSource) options(log *slog.Logger) dir.Options {
	r := &loadReview{exposed: d.exposed}
	return dir.Options{Log: log, V2: d.loading.v2, Types: d.types, CEL: cel.Compile, References: true, Flag: dirload.FlagOfOption, Review: r.load}
}
