package revisions

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// freedMost limits the number of released groups that the head remembers.
const freedMost = 20

// freedKey is the key of the released groups in the head. A release of Chancery that does not know
// this key keeps it.
const freedKey = "freed"

// A freedText is the stored record of a released group.
type freedText struct {
	Number  Number    `json:"number"` // the revision at which the group was held
	Author  string    `json:"author,omitempty"`
	Message string    `json:"message,omitempty"`
	Time    time.Time `json:"time"`
}

// Released returns the author and the message of each release, for the last groups that are no longer
// held. SetHolds records them. Number is the revision at which the group was held.
func (r *Repository) Released(ctx context.Context) (map[string]Hold, error) {
	h, err := r.head(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]Hold{}
	for group, t := range h.freed() {
		all[group] = Hold{Number: t.Number, Author: t.Author, Message: t.Message, Time: t.Time}
	}
	return all, nil
}

// freed returns the released groups of a head. It ignores an unreadable record.
func (h *head) freed() map[string]freedText {
	all := map[string]freedText{}
	if json.Unmarshal(h.all[freedKey], &all) != nil || all == nil {
		return map[string]freedText{}
	}
	return all
}

// release removes the released groups from holds, and returns their records.
func (h *head) release(holds map[string]Hold) map[string]freedText {
	all := h.freed()
	for group, hold := range holds {
		delete(all, group)
		if hold.Number > 0 {
			continue
		}
		if was, is := h.holds[group]; is {
			all[group] = freedText{was.Number, hold.Author, hold.Message, hold.Time.UTC()}
		}
		delete(holds, group)
	}
	oldest := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return all[a].Time.Compare(all[b].Time) })
	for _, group := range oldest[:max(0, len(oldest)-freedMost)] {
		delete(all, group)
	}
	return all
}
