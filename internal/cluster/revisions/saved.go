package revisions

import (
	"fmt"
	"strconv"
	"strings"
)

// Mark returns a text that identifies a snapshot in its repository. A program that saves the items to
// disk also saves the mark, for [FromSaved]. The mark is "" if the snapshot is not in a repository.
func (s *Snapshot) Mark() string {
	if s.Revision.id == (revisionID{}) {
		return ""
	}
	return s.Revision.id.key() + "+" + strconv.Itoa(s.head.turns)
}

// FromSaved is like [Of], for items that were saved together with the mark of their snapshot. Its
// revision has the number in the mark, and no other data. Pass the snapshot to [Repository.Observe],
// so that the repository returns no older revision.
func FromSaved(items []*Item, mark string) (*Snapshot, error) {
	s, err := Of(items)
	if err != nil || mark == "" {
		return s, err
	}
	key, turns, _ := strings.Cut(mark, "+")
	id, ok := parseRevisionKey(key)
	n, err := strconv.Atoi(turns)
	if !ok || err != nil || n < 0 || id.number == 0 {
		return nil, fmt.Errorf("%q is not the mark of a snapshot", mark)
	}
	s.Revision.Number, s.Revision.id, s.head.turns, s.saved = id.number, id, n, true
	return s, nil
}
