package export

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	internaldisk "github.com/chancery-xds/chancery/internal/disk"
	"github.com/chancery-xds/chancery/internal/envoy"
	"github.com/chancery-xds/chancery/xds"
)

// Options of an export. The zero value is ready to use.
type Options struct {
	Format *Format // YAML if nil

	// Types are the messages that resources may have; Envoy's API if nil.
	Types *envoy.Types

	// Prefix is the path at which Envoy finds the directory of the exports. By
	// default it is that of the directory here.
	Prefix string

	// KeepSources leaves the ConfigSources in resources as they are. Then there
	// is no bootstrap either.
	KeepSources bool

	// Settle is the pause that Envoy gets between the steps of a change that
	// takes several. With zero every change is one step.
	Settle time.Duration

	// Bootstrap, if set, returns a bootstrap for Envoy that has listeners and
	// clusters from files, in a directory to be watched.
	Bootstrap func(listeners, clusters, watched string) ([]byte, error)
}

// An Exporter writes to a directory, to which no other writes meanwhile. It is
// not safe for concurrent use.
type Exporter struct {
	Options
	dir       outDir
	bootstrap []byte
	kept      map[*xds.Resource]*piece // of the last export
	held      *internaldisk.Held

	grace time.Duration // for which an export stays after it was replaced
}

// A Report says what an export has and did.
type Report struct {
	Resources int // in the export
	Files     int

	Steps   int // 0: nothing had changed
	Written int // files, in all steps
	Removed int // files that there are no more

	// Watches is how many files an Envoy watches at least that has all listeners
	// and clusters. Each costs it an inotify instance, where Linux has them.
	Watches int

	// Warnings tell what an Envoy will miss, each on a line.
	Warnings []string
}

// Open returns an exporter to a directory, which is made if it is not there.
// What an exporter left there before is where the next export goes on from.
func Open(root string, o Options) (*Exporter, error) {
	if err := os.MkdirAll(root, 0o750); err != nil {
		return nil, err
	}
	info, err := os.Stat(root)
	if err != nil {
		return nil, err
	}
	held, err := internaldisk.Lock(root)
	switch {
	case errors.Is(err, internaldisk.ErrBusy):
		return nil, &fs.PathError{Op: "lock", Path: root, Err: ErrBusy}
	case err != nil:
		return nil, err
	}
	e := &Exporter{Options: o, held: held, grace: 100 * time.Millisecond, dir: outDir{system: disk{info.Mode()}, root: root}}
	if err := e.open(); err != nil {
		held.Unlock()
		return nil, err
	}
	return e, nil
}

func (e *Exporter) open() error {
	e.Format = cmp.Or(e.Format, formats[0])
	if e.Types == nil {
		e.Types = envoy.Envoy()
	}
	if e.Prefix == "" {
		abs, err := filepath.Abs(e.dir.root)
		if err != nil {
			return err
		}
		e.Prefix = abs
	}
	e.Prefix = path.Clean(filepath.ToSlash(e.Prefix))
	if e.Bootstrap != nil && !e.KeepSources {
		var err error
		if e.bootstrap, err = e.Bootstrap(e.at(e.Format.pathOf(xds.Listener, "")), e.at(e.Format.pathOf(xds.Cluster, "")), e.Prefix); err != nil {
			return err
		}
	}
	if err := e.dir.open(); err != nil || e.dir.shown == nil {
		return err
	}
	return e.resume()
}

// resume reads of the last export what the next one may have to keep for a
// while.
func (e *Exporter) resume() error {
	for _, t := range xds.Types() {
		if !collective(t) {
			continue
		}
		path := e.Format.pathOf(t, "")
		f := e.dir.shown[path]
		if f == nil {
			return fmt.Errorf("%s has an export in another format than %s: an Envoy that runs from it would get no more changes", e.dir.root, e.Format)
		}
		if t.After != nil {
			continue // replaced at once
		}
		pieces, err := e.Format.read(e.Types, t, f.data)
		if err != nil {
			return fmt.Errorf("the last export is damaged: remove %s, and the next one starts anew: %s: %w", filepath.Join(e.dir.root, current), path, err)
		}
		f.pieces = pieces
	}
	return nil
}

// at returns the path at which Envoy finds a file of the export.
func (e *Exporter) at(file string) string { return path.Join(e.Prefix, current, file) }

// Export puts what a view has in the place of the last export. With an error
// nothing has changed, unless some of the steps were done: then Envoy has all it
// had, and some of what is new, and the next export goes on from there. It is an
// error too if ctx is done between two steps.
//
// If nothing has changed, nothing is written.
func (e *Exporter) Export(ctx context.Context, view xds.Tables) (Report, error) {
	if err := e.again(); err != nil {
		return Report{}, err
	}
	if !e.dir.intact() {
		e.dir.shown = nil // all is written anew
	}
	next, report, err := e.build(view)
	if err != nil {
		return report, err
	}
	steps := []files{next}
	if e.Settle > 0 || next.equal(e.dir.shown) {
		steps = e.Format.steps(e.dir.shown, next)
	}
	for path := range e.dir.shown {
		if next[path] == nil {
			report.Removed++
		}
	}
	for i, step := range steps {
		if i > 0 && !wait(ctx, e.Settle) {
			return report, fmt.Errorf("stopped between two steps: %w", ctx.Err())
		}
		n, err := e.dir.replace(step)
		report.Steps, report.Written = report.Steps+1, report.Written+n
		if err != nil {
			return report, err
		}
	}
	err = errors.Join(e.dir.link(e.bootstrap != nil), e.dir.Sync(e.dir.root))
	if report.Steps > 0 {
		// Who has followed the link to the last export is opening a file there.
		wait(ctx, e.grace)
	}
	if err = errors.Join(err, e.dir.tidy()); err != nil {
		return report, fmt.Errorf("the export is in place, but: %w", err)
	}
	return report, nil
}

// Intact reports whether the last export is still there as it was made, as far as can be seen without reading it: its links,
// and its files by their sizes. If it is not, the next Export makes it again, though it is of the same.
func (e *Exporter) Intact() bool {
	if !e.held.Holds(e.dir.root) || !e.dir.intact() {
		return false
	}
	_, err := os.Lstat(filepath.Join(e.dir.root, bootstrapLink))
	return err == nil || e.bootstrap == nil || e.dir.shown == nil
}

// again opens the directory again if it was removed, or another is in its place: another program may
// export to that one, and there may be another export in it.
func (e *Exporter) again() error {
	if e.held.Holds(e.dir.root) {
		return nil
	}
	fresh, err := Open(e.dir.root, e.Options)
	if err != nil {
		return fmt.Errorf("%s is not what it was, and cannot be opened again: %w", e.dir.root, err)
	}
	e.held.Unlock()
	*e = *fresh
	return nil
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// Exposed reports whether everybody on this machine may read what is exported.
func (e *Exporter) Exposed() bool {
	const others = 0o005
	info, err := os.Stat(e.dir.root)
	return err == nil && info.Mode()&others == others
}

// Close lets others write to the directory.
func (e *Exporter) Close() { e.held.Unlock() }

// ErrBusy is the error of a directory that another program exports to.
var ErrBusy = errors.New("another program exports to this directory")

// Inside reports whether a directory is, or would be, in another one or the
// same, with symbolic links followed.
func Inside(dir, of string) (bool, error) {
	d, err := real(dir)
	if err != nil {
		return false, err
	}
	o, err := real(of)
	if err != nil {
		return false, err
	}
	rel, err := filepath.Rel(o, d)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator)), nil
}

// real returns a path without links, of which the end need not exist.
func real(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if r, err := filepath.EvalSymlinks(abs); !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) {
		return r, err
	}
	parent, err := real(filepath.Dir(abs))
	return filepath.Join(parent, filepath.Base(abs)), err
}
