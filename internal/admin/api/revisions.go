package api

import "time"

// A History is the answer of GET /api/v1/revisions, the newest first, and of one revision.
type History struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"` // "History"
	Items      []Revision `json:"items"`
}

// A Revision is one of a store.
type Revision struct {
	Revision string    `json:"revision"` // such as r412
	Time     time.Time `json:"time"`     // by the clock of who committed it
	Author   string    `json:"author"`
	Message  string    `json:"message"`
	Source   string    `json:"source,omitempty"` // such as a revision of git
	Items    int       `json:"items"`
	Set      int       `json:"set"`
	Removed  int       `json:"removed"`
	Restores string    `json:"restores,omitempty"` // the revision whose content it has; "": a new one
	Holds    []Hold    `json:"holds,omitempty"`    // groups that are frozen at it
}

// A Blame is the answer of GET /api/v1/blame/{type}/{name}.
type Blame struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`  // "Blame"
	Items      []Blamed `json:"items"` // one for each group that has the resource
}

// A Blamed says of a resource in a group which revision set it.
type Blamed struct {
	Group    string     `json:"group"`
	Revision string     `json:"revision"`
	Time     *time.Time `json:"time,omitempty"` // it and the next three are not known of a revision that is not kept any more
	Author   string     `json:"author,omitempty"`
	Message  string     `json:"message,omitempty"`
	Source   string     `json:"source,omitempty"`
	Place    string     `json:"place,omitempty"` // where it stood in the files of who set it
}

// A RevisionLine is a line of GET /api/v1/revisions/{rev}/items, whose first has the revision, and of
// POST /api/v1/revisions, whose first has the commit. Each other has an item.
type RevisionLine struct {
	Revision *Revision      `json:"revision,omitempty"`
	Commit   *CommitRequest `json:"commit,omitempty"`
	Item     *RevisionItem  `json:"item,omitempty"`
}

// A RevisionItem is a resource in a group, the file that says what a group is (it has a definition, and no type), or
// the version of a type (it has no name).
type RevisionItem struct {
	Group      string   `json:"group"`
	Type       string   `json:"type,omitempty"` // its URL
	Name       string   `json:"name,omitempty"`
	Version    string   `json:"version,omitempty"` // "": it is made of the content
	Body       []byte   `json:"body,omitempty"`    // of a resource: the encoded message
	Aliases    []string `json:"aliases,omitempty"`
	TTL        string   `json:"ttl,omitempty"`
	OnDemand   bool     `json:"on_demand,omitempty"`
	Definition string   `json:"definition,omitempty"`
	Secret     bool     `json:"secret,omitempty"`   // there is one in it
	Redacted   bool     `json:"redacted,omitempty"` // of an answer: the body is without what may not be shown
	File       string   `json:"file,omitempty"`     // where it stood
	Line       int      `json:"line,omitempty"`
	Col        int      `json:"col,omitempty"`
	Path       string   `json:"path,omitempty"` // of the field
}

// A CommitRequest says what is to be made of the items that follow.
type CommitRequest struct {
	Message string `json:"message"`           // why
	Author  string `json:"author,omitempty"`  // who asks for it, as they say: it stands beside what the server knows of them
	Source  string `json:"source,omitempty"`  // such as a revision of git
	Prune   bool   `json:"prune,omitempty"`   // remove what is not among the items
	DryRun  bool   `json:"dry_run,omitempty"` // commit nothing: changes says what would be
	IfHead  string `json:"if_head,omitempty"` // it is a conflict unless this is the newest; "": if another has changed the same
}

// A Commit is the answer of POST /api/v1/revisions, and of a restore.
type Commit struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`              // "Commit"
	DryRun     bool             `json:"dry_run,omitempty"` // nothing is committed: the rest says what would be
	Revision   string           `json:"revision"`          // the newest now
	Base       string           `json:"base"`              // the newest before; the same, but of a dry run: nothing differs
	Set        int              `json:"set"`
	Removed    int              `json:"removed"`
	Kept       int              `json:"kept,omitempty"`     // are not among the items, and stay since nothing is pruned
	Changes    []RevisionChange `json:"changes,omitempty"`  // of a dry run
	Held       []HeldChanges    `json:"held,omitempty"`     // what is committed, and is not served
	Warnings   []string         `json:"warnings,omitempty"` // what is doubtful in it, such as a reference to what is missing: each with its place
}

// A HeldChanges is of a group that is frozen, or has a rollout.
type HeldChanges struct {
	Hold
	Changes int `json:"changes"`
}

// A RevisionChange is one that a dry run would make.
type RevisionChange struct {
	Change string `json:"change"` // "added", "changed", "removed"
	Group  string `json:"group"`
	Type   string `json:"type,omitempty"` // its URL; "": what the group is
	Name   string `json:"name,omitempty"` // "": the version of the type
	Place  string `json:"place,omitempty"`
}
