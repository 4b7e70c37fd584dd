package revisions

import (
	"fmt"
	"strconv"
	"strings"
)

// Mark returns a text that tells a snapshot from all others of its repository: who keeps the items elsewhere keeps it with
// them, and has [Kept] read it. It is "" if the snapshot is of no repository.
func (s *Snapshot) Mark() string {
	if s.Revision.id == (revisionID{}) {
		return ""
	}
	return s.Revision.id.key() + "+" + strconv.Itoa(s.head.turns)
}

// Kept is [Of] for items that were kept with the mark of their snapshot. Its revision has that one's number, and nothing else of it; what
// a repository says is the newest must be no older ([Repository.Saw]).
func Kept(items []*Item, mark string) (*Snapshot, error) {
	s, err := Of(items)
	if err != nil || mark == "" {
		return s, err
	}
	key, turns, _ := strings.Cut(mark, "+")
	id, ok := parseRevisionKey(key)
	n, err := strconv.Atoi(turns)
	if !ok || err != nil || n < 0 || id.number == 0 {
		return nil, fmt.Errorf("%q is no mark of a snapshot", mark)
	}
	s.Revision.Number, s.Revision.id, s.head.turns, s.kept = id.number, id, n, true
	return s, nil
}
