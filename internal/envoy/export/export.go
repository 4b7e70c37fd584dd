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

// Options configure an export. The zero value is ready to use.
type Options struct {
	Format *Format // YAML if nil

	// Types are the message types that resources may contain; nil means Envoy's API.
	Types *envoy.Types

	// Prefix is the path of the export directory on Envoy's machine. The default is its path on this
	// machine.
	Prefix string

	// KeepSources leaves the ConfigSources in resources unchanged. Then there is no bootstrap either.
	KeepSources bool

	// Settle is the pause for Envoy between the steps of a change. With zero, every change is one step.
	Settle time.Duration

	// Bootstrap, if set, returns a bootstrap that reads listeners and clusters from files in a watched
	// directory.
	Bootstrap func(listeners, clusters, watched string) ([]byte, error)
}

// An Exporter writes to a directory and locks it against other exporters. It is not safe for concurrent
// use.
type Exporter struct {
	Options
	dir       outDir
	bootstrap []byte
	kept      map[*xds.Resource]*piece // pieces of the last export, to reuse
	held      *internaldisk.Held

	grace time.Duration // the time to keep a replaced export for readers that just followed the link
}

// A Report describes an export and the changes it made.
type Report struct {
	Resources int // in the new export
	Files     int

	Steps   int // 0: no change
	Written int // files, in all steps
	Removed int // files that the new export lacks

	// Watches is the minimum number of files that an Envoy with all listeners and clusters watches. On
	// Linux each watch uses an inotify instance.
	Watches int

	// Warnings describe parts of the configuration that Envoy cannot get from files.
	Warnings []string
}

// Open returns an exporter to a directory, and creates the directory if needed. The next export
// continues from the last one in the directory.
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
		e.bootstrap, err = e.Bootstrap(e.at(e.Format.pathOf(xds.Listener, "")), e.at(e.Format.pathOf(xds.Cluster, "")), e.Prefix)
		if err != nil {
			return err
		}
	}
	if err := e.dir.open(); err != nil || e.dir.live == nil {
		return err
	}
	return e.resume()
}

// resume reads the resources of the last export that the next one may have to keep for a while.
func (e *Exporter) resume() error {
	for _, t := range xds.Types() {
		if !collective(t) {
			continue
		}
		path := e.Format.pathOf(t, "")
		f := e.dir.live[path]
		if f == nil {
			return fmt.Errorf("%s has an export in another format than %s: an Envoy that runs from it would get no further updates", e.dir.root, e.Format)
		}
		if t.After != nil && !t.Binds {
			continue // replaced in one step, in any order
		}
		pieces, err := e.Format.read(e.Types, t, f.data)
		if err != nil {
			return fmt.Errorf("the last export is damaged: remove %s to start a new one: %s: %w", filepath.Join(e.dir.root, current), path, err)
		}
		f.pieces = pieces
	}
	return nil
}

// at returns the path of an exported file on Envoy's machine.
func (e *Exporter) at(file string) string { return path.Join(e.Prefix, current, file) }

// Export replaces the last export by the contents of a view. If nothing has changed, it writes nothing.
//
// After an error before the first step, the last export is in place. After a later error, Envoy has all
// old resources and some new ones, and the next Export continues from there. Export also returns an
// error if ctx ends between two steps.
func (e *Exporter) Export(ctx context.Context, view xds.Tables) (Report, error) {
	if err := e.reopen(); err != nil {
		return Report{}, err
	}
	if !e.dir.intact() {
		e.dir.live = nil // write everything anew
	}
	next, report, err := e.build(view)
	if err != nil {
		return report, err
	}
	steps := []files{next}
	if e.Settle > 0 || next.equal(e.dir.live) {
		steps = e.Format.steps(e.dir.live, next)
	}
	for path := range e.dir.live {
		if next[path] == nil {
			report.Removed++
		}
	}
	for i, step := range steps {
		if i > 0 && !wait(ctx, e.Settle) {
			return report, fmt.Errorf("the export stopped between two steps: %w", ctx.Err())
		}
		n, err := e.dir.replace(step)
		report.Steps, report.Written = report.Steps+1, report.Written+n
		if err != nil {
			return report, err
		}
	}
	err = errors.Join(e.dir.link(e.bootstrap != nil), e.dir.Sync(e.dir.root))
	if report.Steps > 0 {
		// A reader that has followed the link may still open a file of the last export.
		wait(ctx, e.grace)
	}
	err = errors.Join(err, e.dir.tidy())
	if err != nil {
		return report, fmt.Errorf("the export is in place, but finishing it failed: %w", err)
	}
	return report, nil
}

// Intact reports whether the last export is still in place. It checks the links and the sizes of the
// files, not their contents. If it is not in place, the next Export writes it again, even without a
// change.
func (e *Exporter) Intact() bool {
	if !e.held.Holds(e.dir.root) || !e.dir.intact() {
		return false
	}
	_, err := os.Lstat(filepath.Join(e.dir.root, bootstrapLink))
	return err == nil || e.bootstrap == nil || e.dir.live == nil
}

// reopen opens the directory again if it was removed or replaced. Another program may export to the new
// directory, or a different export may be in it.
func (e *Exporter) reopen() error {
	if e.held.Holds(e.dir.root) {
		return nil
	}
	fresh, err := Open(e.dir.root, e.Options)
	if err != nil {
		return fmt.Errorf("%s was replaced and cannot be reopened: %w", e.dir.root, err)
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

// Exposed reports whether every user of this machine may read the export.
func (e *Exporter) Exposed() bool {
	const others = 0o005
	info, err := os.Stat(e.dir.root)
	return err == nil && info.Mode()&others == others
}

// Close unlocks the directory.
func (e *Exporter) Close() { e.held.Unlock() }

// ErrBusy reports that another program exports to the directory.
var ErrBusy = errors.New("another program exports to this directory")

// Inside reports whether a directory is, or would be, inside another one or equal to it. It follows
// symbolic links.
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

// real returns a path without symbolic links. The last parts of the path need not exist.
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
