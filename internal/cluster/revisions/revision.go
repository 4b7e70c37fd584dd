package revisions

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// A Number is the number of a revision. The first revision is 1; 0 is the empty configuration before
// it.
type Number uint64

// String returns the number as people write it, such as r412.
func (n Number) String() string { return "r" + strconv.FormatUint(uint64(n), 10) }

// ParseNumber parses the format of String; the r is optional.
func ParseNumber(s string) (Number, error) {
	n, err := strconv.ParseUint(strings.TrimPrefix(s, "r"), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a revision number: use one such as r412", s)
	}
	return Number(n), nil
}

// A Note describes a revision for people.
type Note struct {
	Author  string // the author
	Message string // the reason
	Source  string // where the content comes from, such as a git commit
}

// A Revision is a committed configuration. It never changes.
type Revision struct {
	Note
	Number   Number
	Time     time.Time // time by the clock of the writer
	Items    int       // the number of items
	Set      int       // number of new and changed items
	Removed  int       // number of removed items
	Restores Number    // the earlier revision whose content was restored; 0: a new content

	id     revisionID
	parent hash // hash of the revision before; zero: there is none
	root   place
}

// A revisionID identifies one revision, even among several with the same number.
type revisionID struct {
	number Number
	hash   hash
}

const revisionPrefix = "revision/"

// numberPrefix is the prefix of the keys of all revisions with a number. Only one of them was
// committed.
func numberPrefix(n Number) string { return fmt.Sprintf("%s%016d-", revisionPrefix, uint64(n)) }

func (id revisionID) key() string { return numberPrefix(id.number) + id.hash.String() }

// parseRevisionKey parses the result of key.
func parseRevisionKey(key string) (id revisionID, ok bool) {
	number, sum, _ := strings.Cut(strings.TrimPrefix(key, revisionPrefix), "-")
	n, err := strconv.ParseUint(number, 10, 64)
	id.number = Number(n)
	id.hash, ok = parseHash(sum)
	return id, ok && err == nil && id.key() == key
}

// format is the format number of heads and revisions. This version cannot read a higher one.
const format = 1

// A revisionText is a stored revision. It is JSON, so that people can read it with the tools of the
// engine.
type revisionText struct {
	Format   int       `json:"format"`
	Number   Number    `json:"number"`
	Time     time.Time `json:"time"`
	Author   string    `json:"author,omitempty"`
	Message  string    `json:"message,omitempty"`
	Source   string    `json:"source,omitempty"`
	Items    int       `json:"items"`
	Set      int       `json:"set,omitempty"`
	Removed  int       `json:"removed,omitempty"`
	Restores Number    `json:"restores,omitempty"`
	Parent   string    `json:"parent,omitempty"`
	Root     string    `json:"root"`
	Random   string    `json:"random"` // makes the revision unique, as the random bytes of a pack do
}

// encode encodes a revision, and sets its ID.
func (r *Revision) encode() ([]byte, error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // never fails
	t := revisionText{
		Format: format, Number: r.Number, Time: r.Time.UTC(), Author: r.Author, Message: r.Message, Source: r.Source, Items: r.Items, Set: r.Set,
		Removed: r.Removed, Restores: r.Restores, Root: hex.EncodeToString(r.root.encode()), Random: hex.EncodeToString(random[:]),
	}
	if r.parent != (hash{}) {
		t.Parent = r.parent.String()
	}
	b, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	if len(b) > packMost {
		return nil, fmt.Errorf("the note of a revision: %w", ErrTooLarge)
	}
	r.id = revisionID{r.Number, sha256.Sum256(b)}
	return b, nil
}

// decodeRevision decodes the result of encode.
func decodeRevision(id revisionID, b []byte) (*Revision, error) {
	if sha256.Sum256(b) != id.hash {
		return nil, fmt.Errorf("its content does not match its name: %w", ErrDamaged)
	}
	var t revisionText
	if err := decodeText(b, &t.Format, format, &t); err != nil {
		return nil, err
	}
	r := &Revision{
		Note: Note{t.Author, t.Message, t.Source}, Number: t.Number, Time: t.Time, Items: t.Items, Set: t.Set, Removed: t.Removed, Restores: t.Restores, id: id,
	}
	ok := t.Parent == ""
	if !ok {
		r.parent, ok = parseHash(t.Parent)
	}
	root, err := hex.DecodeString(t.Root)
	r.root, ok = decodeRoot(root, ok && err == nil)
	if !ok || r.Number != id.number {
		return nil, fmt.Errorf("not the revision that its key names: %w", ErrDamaged)
	}
	return r, nil
}

func decodeRoot(b []byte, ok bool) (place, bool) {
	p, is := decodePlace(b)
	return p, ok && is
}

// decodeText decodes JSON into v, unless its format is higher than newest.
func decodeText(b []byte, form *int, newest int, v any) error {
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("not written by Chancery: %w: %w", ErrDamaged, err)
	}
	if *form < format || *form > newest {
		if *form > newest {
			return ErrNewer
		}
		return fmt.Errorf("not written by Chancery: %w", ErrDamaged)
	}
	return nil
}

// headKey is the only key whose value changes.
const headKey = "head"

// A head names the newest revision. It is stored as JSON.
type head struct {
	raw   []byte                     // the stored text; nil: there is no head
	all   map[string]json.RawMessage // all fields, including unknown ones of later versions
	at    revisionID                 // the newest revision
	from  Number                     // the oldest kept revision: a commit must not refer to an older one
	swept int                        // the number of sweeps
	holds map[string]Hold            // by group; must not be changed

	through Number // revisions up to this number may belong to another history, because the head was restored
	turns   int    // number of changes of the holds
}

// emptyFormat is the format number of a head before the first revision. An older release would not
// understand such a head.
const emptyFormat = 3

// emptyHead returns the head that a writer stores before its first pack.
func emptyHead() (head, error) {
	b, err := json.Marshal(headText{Format: emptyFormat})
	return head{raw: b, all: map[string]json.RawMessage{}}, err
}

type headText struct {
	Holds    map[string]holdText `json:"holds,omitempty"` // the groups that are served from another revision
	Format   int                 `json:"format"`
	Number   Number              `json:"number"`
	Revision string              `json:"revision"`
	Oldest   Number              `json:"oldest"`
	Swept    int                 `json:"swept"`
	Turns    int                 `json:"turns,omitempty"`
}

func decodeHead(b []byte) (head, error) {
	h := head{raw: b}
	var t headText
	if err := decodeText(b, &t.Format, emptyFormat, &t); err != nil {
		return h, err
	}
	if err := json.Unmarshal(b, &h.all); err != nil {
		return h, err
	}
	if t.Format == emptyFormat && t.Number == 0 && t.Revision == "" {
		h.all = map[string]json.RawMessage{}
		return h, nil
	}
	sum, ok := parseHash(t.Revision)
	if !ok || t.Format == emptyFormat || t.Number == 0 || t.Oldest == 0 || t.Oldest > t.Number {
		return h, fmt.Errorf("not written by Chancery: %w", ErrDamaged)
	}
	h.at, h.from, h.swept, h.turns = revisionID{t.Number, sum}, t.Oldest, t.Swept, t.Turns
	var restored restoredText
	_ = json.Unmarshal(h.all[restoredKey], &restored) // absent in most heads
	h.through = restored.Through
	return h, h.decodeHolds(t.Holds)
}

// next returns the head with other values, encoded.
func (h head) next(at revisionID, from Number, swept int) (head, error) {
	text := headText{Format: format, Number: at.number, Revision: at.hash.String(), Oldest: from, Swept: swept, Turns: h.turns}
	if len(h.holds) > 0 {
		text.Format = holdFormat
	}
	b, err := json.Marshal(text)
	if err != nil {
		return h, err
	}
	all := maps.Clone(h.all)
	if err := json.Unmarshal(b, &all); err != nil { // keeps the unknown fields
		return h, err
	}
	b, err = json.Marshal(all)
	if err != nil {
		return h, err
	}
	h.raw, h.all, h.at, h.from, h.swept = b, all, at, from, swept
	return h, nil
}
