package revisions

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"
)

// freedMost is how many groups are remembered that are held no more: they are in the head.
const freedMost = 20

// freedKey is where they are. A Chancery that does not know it keeps it.
const freedKey = "freed"

// A freedText is who let a group go, as it is stored.
type freedText struct {
	Number  Number    `json:"number"` // that it was held at
	Author  string    `json:"author,omitempty"`
	Message string    `json:"message,omitempty"`
	Time    time.Time `json:"time"`
}

// Freed returns who let groups go, and why, of the last that are held no more: those that [Repository.SetHolds] was told of. Number is what they were
// held at.
func (r *Repository) Freed(ctx context.Context) (map[string]Hold, error) {
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

// freed is what a head says of groups that are held no more. What cannot be read is forgotten.
func (h *head) freed() map[string]freedText {
	all := map[string]freedText{}
	if json.Unmarshal(h.all[freedKey], &all) != nil || all == nil {
		return map[string]freedText{}
	}
	return all
}

// let takes from holds those that are none, and returns who let these go.
func (h *head) let(holds map[string]Hold) map[string]freedText {
	all := h.freed()
	for group, hold := range holds {
		if delete(all, group); hold.Number > 0 {
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
