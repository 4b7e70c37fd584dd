package endpoints

import (
	"log/slog"
	"slices"
)

// A tally collects changes and errors for one log line each.
type tally struct {
	set, removed int
	clusters     []string
	bad          int
	badKey       Key
	badErr       error
}

const named = 3 // clusters in a log line

func (t *tally) change(c Change) {
	if c.Value == nil {
		t.removed++
	} else {
		t.set++
	}
	if name := (Key{Cluster: c.Cluster}).String(); len(t.clusters) < named && !slices.Contains(t.clusters, name) {
		t.clusters = append(t.clusters, name)
	}
}

func (t *tally) wrong(k Key, err error) {
	t.bad++
	if t.bad == 1 {
		t.badKey, t.badErr = k, err
	}
}

func (t *tally) log(log *slog.Logger) {
	if t.bad > 0 {
		log.Error("invalid registered endpoints: the earlier ones stay", "count", t.bad, "first", t.badKey.String(), "error", t.badErr)
	}
	if t.set+t.removed > 0 {
		log.Info("registrations changed endpoints", "set", t.set, "removed", t.removed, "clusters", t.clusters)
	}
}
