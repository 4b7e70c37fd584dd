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

// Options configure a source. The zero value is ready to use.
type Options struct {
	// Types are the message types that files may contain; Envoy's API if nil.
	Types *Types
	// Log receives a line for each reload; slog.Default() if nil.
	Log *slog.Logger
	// Group is the group of the store to fill; [store.DefaultGroup] if empty. If directories define
	// groups of their own ([GroupFile]), Group is the group of the root. The other groups keep their
	// names, and the rules in the files select groups for each node ([store.Tx.Select]). Then no other
	// source may fill the store.
	Group string
	// CEL compiles expressions in rules of groups, for example groups/cel.Compile. If nil, an
	// expression is a mistake.
	CEL func(expression string) (groups.Predicate, error)
	// MaxFile is the size of the largest file that is read, in bytes; 64 MiB if zero.
	MaxFile int64
	// FollowLinksOutside follows symbolic links that lead out of the directory. If false, such a link
	// is a mistake.
	FollowLinksOutside bool
	// V2 accepts resources of v2, the API before v3. If false, such a resource is a mistake.
	V2 bool
	// AllowMassDelete lets any reload remove all resources at once, or more than half of the resources
	// that a type had in the last 10 minutes. If false, such a reload is refused until [Source.ReloadAndWait]
	// approves it, because an unmounted volume or an incomplete checkout looks the same.
	AllowMassDelete bool
	// HowToAllow is the hint in the error of such a refusal, for example how your program calls
	// [Source.ReloadAndWait]; no hint if empty.
	HowToAllow string
	// AllowEmpty accepts a directory without files or resources as a valid configuration. If false,
	// such a directory at the start counts as not mounted yet: clients get no response.
	AllowEmpty bool
	// LoadAtOnce loads each change of a file as soon as the system reports it. If false, [Source.Run] loads at
	// once only a file that was replaced by a rename and changes nothing but endpoints. It gathers all other
	// changes until the files are quiet for 100 ms, and waits up to 10 s for resources to which they refer.
	// Set it only if each change is one rename.
	LoadAtOnce bool
	// Confirm is how long resources must be missing from the files before they are removed, if a type
	// of 20 or more resources loses more than a tenth. Zero: they are removed at once.
	Confirm time.Duration
	// References makes a load warn, as [Check] does, of references to resources that no file has, and of
	// responses that are too large for gRPC clients.
	References bool
	// Bootstraps are the known bootstraps of the clients (envoy.config.bootstrap.v3.Bootstrap). A load
	// does not warn of references to a cluster that a bootstrap has. [Check] does not warn that a
	// resource is unused if a bootstrap refers to it. Validate treats the secrets of a bootstrap as
	// known, and a route inside a listener to an unknown cluster as a mistake.
	Bootstraps []proto.Message
	// ReadBootstraps reads a bootstrap from the file [BootstrapFile] in the directory, which counts for all
	// clients, and in the directory of each group, which counts for the nodes of that group. A load does not
	// fail because of an error in such a file: the source logs it, and [Checked] has it.
	ReadBootstraps bool
	// Validate reports resources that Envoy would refuse, as mistakes. If false, [Source.Run] logs some
	// of them after a load.
	Validate bool
	// MaxProblems is how many mistakes, and how many warnings, a load reports; it counts the rest. 100
	// if zero, all if negative.
	MaxProblems int
	// Poll is how often the source looks at the directory if the system reports no change; 30 s if
	// zero.
	Poll time.Duration
	// Flag returns the name in error messages of an option that would allow a refused load, such as
	// "--max-file" for "MaxFile". If nil, the name is "Options.MaxFile".
	Flag func(option string) string

	// Review, if set, receives all resources of a load, in the order of the files, before they are
	// committed. The load adds the resources that it returns, to the groups of the files in their
	// places ([Loaded.With]). If it returns an error, such as [Errors], nothing is committed. One load
	// may call it more than once.
	Review func([]Loaded) ([]Loaded, error)
	// Keep, if set, receives each committed configuration, to store it for the next start: see
	// [Keeper].
	Keep func(LastGood)
	// Done, if set, is called after each load that committed a change or failed. It is also called
	// after the first load that succeeds, at the start or after failures. The error is [RejectedGroups] if only
	// some groups were rejected.
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

// called returns the name of an option in an error message.
func (o Options) called(option string) string {
	if o.Flag != nil {
		return o.Flag(option)
	}
	return "Options." + option
}

// Types are message types that are known by their descriptors: those of Envoy's API, and those of
// descriptor sets. They find messages by name and by type URL, also for rest.WithResolver and
// refs.With. [ReadTypes] makes them. They do not change, and any goroutine may use them.
type Types = envoyapi.Types

// ReadTypes returns the types of Envoy's API plus those of descriptor sets in files, as protoc
// --include_imports --descriptor_set_out=FILE and buf build -o FILE write them.
func ReadTypes(sets ...string) (*Types, error) { return envoyapi.Load(sets...) }
