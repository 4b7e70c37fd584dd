package daemon

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/groups/cel"
	"github.com/chancery-xds/chancery/internal/admin"
	"github.com/chancery-xds/chancery/internal/admin/api"
	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/internal/cli/dirload"
	"github.com/chancery-xds/chancery/internal/cluster/dircommit"
	"github.com/chancery-xds/chancery/internal/cluster/revisions"
	"github.com/chancery-xds/chancery/internal/cluster/rollout"
	internalsecret "github.com/chancery-xds/chancery/internal/envoy/secrets"
	"github.com/chancery-xds/chancery/internal/quarantine"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
)

// revisionsOf returns the part of the admin API for the store. It returns nil without a store. Without a
// quarantine, held is nil.
func revisionsOf(src source, held *quarantine.Source) *admin.Revisions {
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
				return wiring.ProblemsOf(err), nil
			}
			warnings = dirload.Warnings(quiet)
			if restored { // apply finds these in the files
				warnings = append(warnings, dirload.Refusable(quiet)...)
				warnings = append(warnings, knownRefusals(next, quiet, held, d.rollouts.RolledBack())...)
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

// maxKnownRefusals is the maximum number of refused versions that the review of a rollback compares.
const maxKnownRefusals = 1000

// knownRefusals returns a warning if connected clients refuse content of a revision, and one if a rollout to
// the revision was rolled back. The argument loaded has the places of the revision.
func knownRefusals(next *revisions.Snapshot, loaded *dir.Source, held *quarantine.Source, back []*rollout.State) (all []string) {
	texts := map[string]string{} // error texts of clients by type, name and content
	if held != nil {
		for _, r := range held.Refused(maxKnownRefusals) {
			texts[r.Type.URL+"\x00"+r.Name+"\x00"+r.Sum.String()] = r.Text
		}
	}
	first, more := "", 0
	for it := range next.All {
		r := it.Resource
		if r == nil {
			continue
		}
		switch why, refused := texts[r.Type.URL+"\x00"+r.Name+"\x00"+r.Sum.String()]; {
		case refused && first == "":
			place, _ := loaded.Lookup(it.Group, r.Type, r.Name)
			first = fmt.Sprintf("%s: warning: connected clients refuse %s %s of this revision: %s", place.Pos, r.Type, r.Name, text.Line(why))
		case refused:
			more++
		}
	}
	if more > 0 {
		first += fmt.Sprintf("; they refuse %s of it, too", text.Amount(more, "other resource"))
	}
	if first != "" {
		all = append(all, first)
	}
	for _, s := range back {
		if s.Number == next.Revision.Number {
			all = append(all, fmt.Sprintf("warning: rollout %s to this revision was rolled back: %s", s.ID, text.Line(s.Why)))
			break // the newest
		}
	}
	return all
}

// options returns the options of dirView.
func (d *storeSource) options(log *slog.Logger) dir.Options {
	r := &loadReview{exposed: d.exposed}
	return dir.Options{Log: log, V2: d.loading.v2, Types: d.types, CEL: cel.Compile, References: true, Flag: dirload.FlagOfOption, Review: r.load}
}
