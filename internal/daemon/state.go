package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"

	"github.com/chancery-xds/chancery/internal/admin/wiring"
	"github.com/chancery-xds/chancery/internal/cli"
	"github.com/chancery-xds/chancery/internal/disk/lastgood"
	"github.com/chancery-xds/chancery/internal/faults"
	"github.com/chancery-xds/chancery/internal/listen/reloadsocket"
	"github.com/chancery-xds/chancery/internal/text"
	"github.com/chancery-xds/chancery/source/dir"
)

// stateFlags are the flags of the last good configuration on disk.
type stateFlags struct {
	root           string // the directory; "": nothing is stored
	chosen         bool   // the user gave --state-dir
	withoutSecrets bool
}

// A state stores the last good configuration on disk, and answers "chancery reload" on a socket in the same
// folder.
type state struct {
	stateFlags

	keeper       *lastgood.Keeper                   // nil: nothing is stored
	reloadFolder *lastgood.Keeper                   // the folder for the socket if nothing is stored; nil: none
	restored     atomic.Pointer[lastgood.Config]    // the stored configuration, while it is served; nil: the files are served
	accepted     faults.Record                      // the accepted versions are not stored
	failing      atomic.Pointer[time.Time]          // the time since when the files cannot be loaded; nil: they can
	groups       atomic.Pointer[dir.RejectedGroups] // groups that keep their previous configuration while the others are loaded; nil: none
}

func (s *stateFlags) flags(f *pflag.FlagSet) {
	cli.StateDirFlag(f, &s.root)
	f.BoolVar(&s.withoutSecrets, "state-without-secrets", false, "store no secrets in --state-dir, and omit each type that has a resource with a secret, such as an extension; if that type is listeners, clusters or scoped routes, store nothing")
}

// open opens the folder and the socket. If the user did not give --state-dir, a failure is only a
// warning, for example on a read-only file system.
func (s *state) open(log *slog.Logger, served string) error {
	if err := s.openKeeper(log, served); err != nil || s.keeper != nil {
		return err
	}
	door, err := lastgood.OpenRuntime(served)
	switch {
	case err != nil:
		log.Warn(reloadUnreachable, "error", err, "hint", "use SIGHUP to reload, or give a --state-dir for the socket")
		return nil
	case !door.Storing():
		log.Warn(reloadUnreachable, "error", "until it ends, chancery reload reaches another running server of this directory")
	}
	s.reloadFolder = door
	return nil
}

const reloadUnreachable = "chancery reload cannot reach this server"

func (s *state) openKeeper(log *slog.Logger, served string) error {
	switch {
	case s.root == "" && s.chosen:
		log.Info("the last good configuration is not stored: a restart with invalid files would serve nothing")
		return nil
	case s.root == "": // there is no home directory, and the user gave no --state-dir
		_, err := lastgood.Root()
		log.Warn("the last good configuration is not stored: a restart with invalid files would serve nothing", "error", err, "hint", "--state-dir")
		return nil
	}
	folder, err := lastgood.Folder(s.root, served)
	if err == nil {
		s.keeper, err = lastgood.Open(folder)
	}
	switch {
	case err != nil && s.chosen:
		return cli.Fail(err, "--state-dir chooses another directory; an empty one stores nothing")
	case err != nil:
		log.Warn("the last good configuration is not stored: a restart with invalid files would serve nothing", "error", err, "hint", "--state-dir")
		return nil
	}
	_ = lastgood.Label(folder, served, "") // only "chancery state" needs it
	s.keeper.Log, s.keeper.WithoutSecrets = log, s.withoutSecrets
	return nil
}

// restore serves the stored configuration, if there is one.
func (s *state) restore(log *slog.Logger, src *dir.Source) {
	if s.keeper == nil {
		return
	}
	c, err := s.keeper.Load()
	if err == nil {
		err = src.Restore(c)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		log.Warn("the stored last good configuration cannot be used", "error", err)
	default:
		s.restored.Store(&c)
	}
}

// kept returns a function for the metrics that reports whether the served configuration is stored. It
// returns nil if the flags ask to store nothing.
func (s *state) kept() func() bool {
	switch {
	case s.keeper != nil:
		return s.keeper.Storing
	case s.root == "" && s.chosen:
		return nil
	}
	return func() bool { return false }
}

// faults returns the errors of the system for which the state is not stored.
func (s *state) faults() []faults.Fault {
	if s.keeper == nil {
		return nil
	}
	return append(s.keeper.Faults(), s.accepted.Present()...)
}

// loaded records the result of a load.
func (s *state) loaded(err error) {
	kept, partly := errors.AsType[dir.RejectedGroups](err)
	if err == nil || partly {
		s.groups.Store(nil)
		if partly {
			s.groups.Store(&kept)
		}
		s.restored.Store(nil)
		s.failing.Store(nil)
		return
	}
	s.failing.CompareAndSwap(nil, new(time.Now()))
}

// howToAllow returns the command that approves a removal. The command works in any working directory.
func (s *state) howToAllow(served string) string {
	if s.keeper == nil && s.reloadFolder == nil { // chancery reload cannot reach this server
		return "restart, with --allow-empty if nothing is left"
	}
	absolute := func(path string) string {
		if abs, err := filepath.Abs(path); err == nil {
			path = abs
		}
		return text.ShellQuoted(path)
	}
	command := "chancery reload --allow-mass-delete " + absolute(served)
	if s.chosen || s.reloadFolder != nil {
		root := "''"
		if s.reloadFolder == nil {
			root = absolute(s.root)
		}
		command += " --state-dir " + root
	}
	return command
}

// note describes the served configuration, for /readyz.
func (s *state) note() string {
	if c := s.restored.Load(); c != nil {
		return "the last good configuration, of " + c.At.UTC().Format(time.RFC3339) + ": the files have been rejected since the start; the log says why"
	}
	if t := s.failing.Load(); t != nil {
		return "the last good configuration: the files have been rejected since " + t.UTC().Format(time.RFC3339) + "; the log says why"
	}
	if k := s.groups.Load(); k != nil {
		names := make([]string, 0, 3)
		for _, g := range (*k)[:min(len(*k), 3)] {
			names = append(names, g.Group)
		}
		return "the files, but not those of " + text.Amount(len(*k), "group") + ", which keep their last good: " + strings.Join(names, ", ") + "; the log says why"
	}
	return "the files"
}

// drop removes folders in which nothing is stored. Otherwise each misspelled directory would leave a
// folder behind.
func (s *state) drop() {
	for _, k := range []*lastgood.Keeper{s.keeper, s.reloadFolder} {
		if k != nil {
			k.Release()
		}
	}
}

// run stores configurations and answers reload requests until ctx is done.
func (s *state) run(ctx context.Context, running *sync.WaitGroup, log *slog.Logger, src *dir.Source) {
	if s.reloadFolder != nil {
		running.Go(func() {
			waits := !s.reloadFolder.Storing()
			if !s.reloadFolder.WaitForLock(ctx) {
				return
			}
			if waits {
				log.Info("the other server has ended: chancery reload reaches this one")
			}
			defer s.reloadFolder.Release()
			s.listen(ctx, s.reloadFolder.Dir(), log, src)
		})
	}
	if s.keeper == nil {
		return
	}
	running.Go(func() { s.keeper.Run(ctx) })
	running.Go(func() {
		select {
		case <-s.keeper.Locked():
		case <-ctx.Done():
			return
		}
		s.listen(ctx, s.keeper.Dir(), log, src)
	})
}

// listen answers reload requests on a socket in a folder until ctx is done.
func (s *state) listen(ctx context.Context, folder string, log *slog.Logger, src *dir.Source) {
	if err := reloadsocket.Serve(ctx, folder, operator{src}, log); err != nil {
		log.Warn(reloadUnreachable, "error", err, "hint", "use SIGHUP to reload; the path of a socket may have about 100 bytes: choose a shorter --state-dir")
	}
}

// An operator loads the files for "chancery reload" and the admin API.
type operator struct{ src *dir.Source }

func (o operator) Reload(ctx context.Context, approve bool) reloadsocket.Reload {
	return wiring.Reload(ctx, o.src, approve)
}
