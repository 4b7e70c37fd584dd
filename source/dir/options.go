package dir

import (
	"cmp"
	"log/slog"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/chancery-xds/chancery/groups"
	envoyapi "github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/store"
)

// Options of a source. The zero value is ready to use.
type Options struct {
	// Types are the messages that files may have; Envoy's API if nil.
	Types *Types
	// Log is told of each reload; slog.Default() if nil.
	Log *slog.Logger
	// Group is the group of the store that is filled; [store.DefaultGroup] if empty. With
	// directories that make groups of their own ([GroupFile]) it is that of the root, the
	// others have their names, and the rules in the files choose for each node
	// ([store.Tx.Select]): then no other source may fill the store.
	Group string
	// CEL compiles expressions in rules of groups, as groups/cel.Compile does. Without it one
	// is a mistake.
	CEL func(expression string) (groups.Predicate, error)
	// MaxFile is the largest file that is read, in bytes; 64 MiB if zero.
	MaxFile int64
	// FollowLinksOutside follows symbolic links that lead out of the directory. Without
	// it one is a mistake.
	FollowLinksOutside bool
	// V2 takes resources of v2, the API before v3. Without it one is a mistake.
	V2 bool
	// AllowMassDelete lets any reload remove more than half of the resources that
	// a type had in the last 10 minutes, or everything, and removes at once. Without
	// it that is refused, since it is what an unmounted volume or half a checkout
	// looks like, until [Source.Order] approves of it.
	AllowMassDelete bool
	// HowToAllow is what an error says who is refused may do, such as how your program calls
	// [Source.Order]; nothing if empty.
	HowToAllow string
	// AllowEmpty says that no files, or none with a resource, are a configuration
	// like any other. Without it a directory that has none at start is one that is
	// not there yet: clients are told nothing.
	AllowEmpty bool
	// Confirm is how long resources must be gone from the files before they are
	// removed, if more than a tenth of a type of 20 or more goes. Zero: no time.
	Confirm time.Duration
	// References says that a load warns, as [Check] does, of references to resources that
	// no file has.
	References bool
	// Bootstraps are those of the clients (envoy.config.bootstrap.v3.Bootstrap), as far as
	// they are known. Nobody is warned that no file has a cluster which is in there, nor,
	// by [Check], that nothing refers to what is referred to from there. Validate takes the
	// secrets there for known.
	Bootstraps []proto.Message
	// Validate looks for what Envoy refuses: each is a mistake.
	Validate bool
	// Most is how many mistakes, and as many warnings, are told; the others are
	// counted. 100 if zero, all if negative.
	Most int
	// Poll is how often the directory is looked at when nothing hints at a
	// change; 30 s if zero.
	Poll time.Duration
	// Flag returns what an error calls an option that would allow what is refused, such as
	// "--max-file" for "MaxFile". Nil: "Options.MaxFile".
	Flag func(option string) string

	// Review, if set, is shown all resources of a load, in the order of the
	// files, before they are committed. What it returns is added, in the groups of the files
	// that their places name ([Loaded.With]); with an error, such as [Errors], nothing is
	// committed. It may be called more than once in a load.
	Review func([]Loaded) ([]Loaded, error)
	// Keep, if set, is given what was committed, to be restored one day: see [Keeper].
	Keep func(LastGood)
	// Done, if set, is told of each load that committed something, or failed, and of
	// the first that did not fail: at the start, or after others that did. The error is
	// [Kept] if only some groups were not loaded.
	Done func(at time.Time, err error)
}

func (o Options) withDefaults() Options {
	o.Log = cmp.Or(o.Log, slog.Default())
	o.Group = cmp.Or(o.Group, store.DefaultGroup)
	o.MaxFile = cmp.Or(o.MaxFile, 64<<20)
	o.Poll = cmp.Or(o.Poll, 30*time.Second)
	o.Types = cmp.Or(o.Types, envoyapi.Envoy())
	return o
}

// called returns what an error calls an option.
func (o Options) called(option string) string {
	if o.Flag != nil {
		return o.Flag(option)
	}
	return "Options." + option
}

// Types are message types that are known by their descriptors: those of Envoy's API, and
// of descriptor sets. They find messages by name and type URL, for rest.WithResolver and
// refs.With too. They are made by [ReadTypes], do not change, and may be used by anyone.
type Types = envoyapi.Types

// ReadTypes returns the types of Envoy's API and those of descriptor sets in files, as
// protoc --include_imports --descriptor_set_out=FILE and buf build -o FILE write them.
func ReadTypes(sets ...string) (*Types, error) { return envoyapi.Load(sets...) }
