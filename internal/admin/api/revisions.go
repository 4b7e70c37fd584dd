package api

import "time"

// A History is the answer of GET /api/v1/revisions, newest first, and of GET /api/v1/revisions/{rev}.
type History struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"` // "History"
	Items      []Revision `json:"items"`
}

// A Revision is a revision of the store.
type Revision struct {
	Revision string    `json:"revision"` // such as r412
	Time     time.Time `json:"time"`     // by the committer's clock
	Author   string    `json:"author"`
	Message  string    `json:"message"`
	Source   string    `json:"source,omitempty"` // such as a git revision
	Items    int       `json:"items"`
	Set      int       `json:"set"`
	Removed  int       `json:"removed"`
	Restores string    `json:"restores,omitempty"` // the older revision with the same content; "": new content
	Holds    []Hold    `json:"holds,omitempty"`    // groups that are frozen at this revision
}

// A RevisionChanges is the answer of GET /api/v1/revisions/{rev}/changes: the differences between a revision
// and the revision before it.
type RevisionChanges struct {
	APIVersion string        `json:"apiVersion"`
	Kind       string        `json:"kind"` // "RevisionChanges"
	Revision   Revision      `json:"revision"`
	Base       string        `json:"base,omitempty"`    // the revision before; absent: this one is the first
	Unknown    string        `json:"unknown,omitempty"` // why the changes are unknown; "": they are known
	Total      int           `json:"total"`
	Items      []ChangedItem `json:"items"`            // by group, type and name; at most 1000
	Held       []HeldChanges `json:"held,omitempty"`   // changes of groups that are frozen at an earlier revision
	Impact     *Impact       `json:"impact,omitempty"` // the connected clients that get the changed resources now; absent: unknown, or more than 10000 changes
}

// A ChangedItem is a resource, the definition of a group, or the version of a type that a revision changed.
type ChangedItem struct {
	Change string `json:"change"` // "added", "changed", "removed"
	Group  string `json:"group"`
	Type   string `json:"type,omitempty"`  // a short name or a type URL; "": the definition of the group
	Name   string `json:"name,omitempty"`  // "": the version of the type
	Place  string `json:"place,omitempty"` // place in the committer's files
	Bytes  int    `json:"bytes"`           // encoded size of the resource; 0: it is removed
	Before int    `json:"before"`          // encoded size before; 0: it is new, or a check hides the size because of secrets
}

// A Blame is the answer of GET /api/v1/blame/{type}/{name}.
type Blame struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`  // "Blame"
	Items      []Blamed `json:"items"` // one for each group that has the resource
}

// A Blamed is the revision that last set a resource in a group.
type Blamed struct {
	Group    string     `json:"group"`
	Revision string     `json:"revision"`
	Time     *time.Time `json:"time,omitempty"` // absent, like the next three fields, if the store no longer has the revision
	Author   string     `json:"author,omitempty"`
	Message  string     `json:"message,omitempty"`
	Source   string     `json:"source,omitempty"`
	Place    string     `json:"place,omitempty"` // place in the committer's files
}

// A RevisionLine is one line of GET /api/v1/revisions/{rev}/items or of POST /api/v1/revisions. The first
// line has the revision or the commit, each other line an item.
type RevisionLine struct {
	Revision *Revision      `json:"revision,omitempty"`
	Commit   *CommitRequest `json:"commit,omitempty"`
	Item     *RevisionItem  `json:"item,omitempty"`
}

// A RevisionItem is one of three kinds of items: a resource of a group; the definition of a group (its
// group.yaml), which has no type; or the version of a type, which has no name.
type RevisionItem struct {
	Group      string   `json:"group"`
	Type       string   `json:"type,omitempty"` // type URL
	Name       string   `json:"name,omitempty"`
	Version    string   `json:"version,omitempty"` // "": a hash of the content
	Body       []byte   `json:"body,omitempty"`    // for a resource: the encoded message
	Aliases    []string `json:"aliases,omitempty"`
	TTL        string   `json:"ttl,omitempty"`
	OnDemand   bool     `json:"on_demand,omitempty"`
	Definition string   `json:"definition,omitempty"`
	Secret     bool     `json:"secret,omitempty"`   // the resource contains a secret
	Redacted   bool     `json:"redacted,omitempty"` // in an answer: secrets are removed from the body
	File       string   `json:"file,omitempty"`     // place in the committer's files
	Line       int      `json:"line,omitempty"`
	Col        int      `json:"col,omitempty"`
	Path       string   `json:"path,omitempty"` // path of the field
}

// A CommitRequest has the options of a commit. It comes before the items.
type CommitRequest struct {
	Message string `json:"message"`           // the reason
	Author  string `json:"author,omitempty"`  // the author that the caller states; the server adds the caller's verified identity
	Source  string `json:"source,omitempty"`  // such as a git revision
	Prune   bool   `json:"prune,omitempty"`   // remove resources that are not among the items
	DryRun  bool   `json:"dry_run,omitempty"` // commit nothing; the field changes of the answer lists the changes
	IfHead  string `json:"if_head,omitempty"` // fail with a conflict unless this is the newest revision; "": fail only if another commit changed the same resources
}

// A Commit is the answer of POST /api/v1/revisions and of a restore.
type Commit struct {
	APIVersion string           `json:"apiVersion"`
	Kind       string           `json:"kind"`              // "Commit"
	DryRun     bool             `json:"dry_run,omitempty"` // nothing was committed; the other fields have the result that a commit would have
	Revision   string           `json:"revision"`          // the newest revision after the commit
	Base       string           `json:"base"`              // the newest revision before the commit; equal to revision if nothing changed, and in every dry run
	Set        int              `json:"set"`
	Removed    int              `json:"removed"`
	Kept       int              `json:"kept,omitempty"`     // resources that are not among the items, and that the commit keeps because prune is false
	Changes    []RevisionChange `json:"changes,omitempty"`  // only in a dry run
	Held       []HeldChanges    `json:"held,omitempty"`     // committed changes that are not served yet
	Warnings   []string         `json:"warnings,omitempty"` // warnings, each with its place, such as a reference to a missing resource
}

// A HeldChanges counts the changes of a group that is frozen or has a rollout. After a rollback without
// changes, the count is 0.
type HeldChanges struct {
	Hold
	Changes int `json:"changes"`
}

// A RevisionChange is a change that a dry run would make.
type RevisionChange struct {
	Change string `json:"change"` // "added", "changed", "removed"
	Group  string `json:"group"`
	Type   string `json:"type,omitempty"` // type URL; "": the definition of the group
	Name   string `json:"name,omitempty"` // "": the version of the type
	Place  string `json:"place,omitempty"`
}
