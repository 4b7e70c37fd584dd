// Package lastgood keeps on disk what a directory held when it was last served, so
// that a program that starts again, and finds mistakes in the files, half of them
// or none, has something to serve. It obeys: "A start on nothing, on mistakes or on
// half a configuration tells no client that anything is gone: the last good is
// served, or nothing is answered."
package lastgood

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/chancery-xds/chancery/internal/disk"

	"github.com/chancery-xds/chancery/xds"
)

// MaxBytes is how large a configuration is that is kept.
const MaxBytes = 1 << 30

// Root returns where programs of this user keep what outlives them: the directory
// that systemd made for the service, that of the system for root, or the user's.
func Root() (string, error) {
	if dir := os.Getenv("STATE_DIRECTORY"); dir != "" {
		return filepath.SplitList(dir)[0], nil
	}
	if runtime.GOOS != "windows" && os.Geteuid() == 0 {
		return "/var/lib/chancery", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "chancery"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(home, ".local", "state", "chancery"), nil
}

var odd = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// Folder returns the folder below root for a served directory, by its absolute
// path as it is written: what a link leads to may change.
func Folder(root, served string) (string, error) {
	abs, err := filepath.Abs(served)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(abs))
	name := odd.ReplaceAllString(filepath.Base(abs), "_")
	return filepath.Join(root, name[:min(len(name), 40)]+"-"+hex.EncodeToString(sum[:6])), nil
}

// A Keeper keeps the last good configuration of one served directory. It is safe
// for one goroutine, besides Keep.
type Keeper struct {
	Log *slog.Logger // slog.Default() if nil

	// WithoutSecrets leaves out each type that has a secret in one of its resources: of
	// those it is only kept that there are any. Of types that clients ask for as a whole
	// that cannot be: if one of these has a secret, nothing is kept.
	WithoutSecrets bool

	dir    string
	held   *disk.Held    // owned by Open, then by Run or Save; nil: another program has the lock
	locked chan struct{} // closed when this one has it
	file   *grown        // owned as held; nil: it is written anew
	next   chan Config   // one slot: the newest that is not written
	failed atomic.Bool   // the last could not be written
}

// Open returns a keeper for a folder, which it makes, for this user alone. While
// another program keeps the same folder it reads what that one writes, and writes
// nothing.
func Open(dir string) (*Keeper, error) {
	k := &Keeper{Log: slog.Default(), dir: dir, locked: make(chan struct{}), next: make(chan Config, 1)}
	if err := k.Lock(); err != nil && !errors.Is(err, disk.ErrBusy) {
		return nil, err
	}
	return k, nil
}

// Lock locks the folder, which it makes if it is not there, unless it is locked. A lock is of
// the folder that there was: of one that was removed it keeps nobody away.
func (k *Keeper) Lock() error {
	if k.held != nil && k.held.Holds(k.dir) {
		return nil
	}
	if err := os.MkdirAll(k.dir, 0o700); err != nil {
		return err
	}
	if err := own(k.dir); err != nil {
		return err
	}
	held, err := disk.Lock(k.dir)
	if err != nil {
		return err
	}
	if k.held == nil {
		close(k.locked)
	} else {
		k.held.Unlock()
	}
	k.held = held
	return nil
}

// Kept reports whether this program keeps the folder, and could write what it was given
// last. It may be called by anyone at any time.
func (k *Keeper) Kept() bool {
	select {
	case <-k.locked:
		return !k.failed.Load()
	default:
		return false
	}
}

// Locked is closed when no other program keeps the folder.
func (k *Keeper) Locked() <-chan struct{} { return k.locked }

// Drop gives the folder back, of which Run was not called, and removes it if nothing is kept in it.
func (k *Keeper) Drop() {
	if k.held == nil {
		return // another program's
	}
	if k.held.Holds(k.dir) {
		_ = os.Remove(k.dir) // or something is in it
	}
	k.held.Unlock()
}

// Dir returns the folder.
func (k *Keeper) Dir() string { return k.dir }

const name = "last-good"

// Load returns the configuration that was kept last. [os.ErrNotExist] says that
// there is none.
func (k *Keeper) Load() (Config, error) {
	path := filepath.Join(k.dir, name)
	info, err := os.Lstat(path)
	switch {
	case err != nil:
		return Config{}, err
	case !info.Mode().IsRegular() || info.Size() > MaxBytes:
		return Config{}, fmt.Errorf("%s: Chancery did not write this file", path)
	case !trusted(info):
		return Config{}, fmt.Errorf("%s belongs to another user, and is not used", path)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	c, err := parse(data)
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// Keep has Run write a configuration. It does not wait; of several the last counts.
func (k *Keeper) Keep(c Config) {
	select {
	case <-k.next:
	default:
	}
	select {
	case k.next <- c:
	default: // there is a newer one
	}
}

// retry is how often a folder is looked at that another program keeps, and how soon what
// the system refused to write is tried again.
const retry = 5 * time.Second

// Run writes what is to be kept until ctx is done, the last before it returns. It
// writes at most for half of the time, so that a large configuration that changes
// often does not keep the disk busy. What the system refuses, as a full disk does, it
// tries again: the next change may be days away.
func (k *Keeper) Run(ctx context.Context) {
	other := false
	for k.held == nil {
		if !other {
			other = true
			k.Log.Warn("another server of the same directory stores the last good configuration: until it ends, this one stores none", "state", k.dir,
				"hint", "chancery reload reaches the other server; give each its own --state-dir")
		}
		select {
		case <-time.After(retry):
			_ = k.Lock()
		case <-ctx.Done():
			return
		}
	}
	defer func() { k.held.Unlock() }()
	if other {
		k.Log.Info("the other server has ended: this one now stores the last good configuration", "state", k.dir)
	}
	said := ""
	var c Config               // the last that was to be kept
	var again <-chan time.Time // nil: it is, or cannot be
	for {
		select {
		case c = <-k.next:
		case <-again:
		case <-ctx.Done():
			select {
			case c = <-k.next:
				k.save(c, &said)
			default:
				if again != nil {
					k.save(c, &said)
				}
			}
			return
		}
		start := time.Now()
		if again = nil; k.save(c, &said) {
			again = time.After(retry)
		}
		select {
		case <-time.After(max(time.Since(start), 100*time.Millisecond)):
		case <-ctx.Done():
		}
	}
}

// save reports whether the system refused to write, which it may not do the next time.
func (k *Keeper) save(c Config, said *string) (refused bool) {
	err := k.Save(c)
	if k.failed.Store(err != nil); err == nil {
		*said = ""
		return false
	}
	if err.Error() != *said {
		*said = err.Error()
		k.Log.Error("the last good configuration is not stored: a restart with invalid files would serve an older one, or nothing", "error", err)
	}
	_, refused = errors.AsType[syscall.Errno](err)
	return refused || errors.Is(err, disk.ErrBusy)
}

// Save writes a configuration, all of it or nothing. Of a folder that another program keeps it
// is an error, and after that has ended it is not: who does not call Run calls Save again.
func (k *Keeper) Save(c Config) error {
	if err := k.Lock(); err != nil {
		return err
	}
	path := filepath.Join(k.dir, name)
	if k.WithoutSecrets {
		var err error
		if c, err = c.withoutSecrets(); err != nil {
			// What is there may have secrets, or be what nobody wants any more.
			if gone := os.Remove(path); !errors.Is(gone, fs.ErrNotExist) {
				err = errors.Join(err, gone)
			}
			return err
		}
	}
	file := k.file
	k.file = nil // nobody knows what is in one that could not be written
	if !file.grow(path, c) {
		if err := disk.Replace(path, 0o600, func(w io.Writer) (err error) {
			file, err = c.write(&counter{w, MaxBytes})
			return err
		}); err != nil {
			return err
		}
	}
	k.file = file
	return nil
}

// withoutSecrets leaves out each type that has a secret in one of its resources: a resource
// alone would seem to be gone. It is an error if clients ask for all of that type, for
// they would be told that there is nothing.
func (c Config) withoutSecrets() (Config, error) {
	root, err := Group{Types: c.Types, Gone: c.Gone}.withoutSecrets()
	if err != nil {
		return c, err
	}
	c.Types, c.Gone = root.Types, root.Gone
	c.Groups = slices.Clone(c.Groups)
	for i, g := range c.Groups {
		if c.Groups[i], err = g.withoutSecrets(); err != nil {
			return c, fmt.Errorf("group %q: %w", g.Name, err)
		}
	}
	return c, nil
}

func (c Group) withoutSecrets() (Group, error) {
	withheld := map[string]bool{xds.Secret.URL: true, xds.Secret.Legacy().URL: true}
	all := c.Types
	c.Types = nil
	for _, t := range all {
		i := slices.IndexFunc(t.Resources, hasSecret)
		switch {
		case i >= 0 && t.Implicit:
			return c, fmt.Errorf("%s %q contains a secret, and cannot be left out as a Secret (SDS) can", t, t.Resources[i].Name)
		case i >= 0 || withheld[t.URL]:
			withheld[t.URL] = true
			t.Withheld, t.Resources = true, nil
		}
		c.Types = append(c.Types, t)
	}
	gone := c.Gone
	c.Gone = nil
	for _, t := range gone {
		if !withheld[t.URL] {
			t.Resources = slices.DeleteFunc(slices.Clone(t.Resources), hasSecret)
			c.Gone = append(c.Gone, t)
		}
	}
	return c, nil
}

func hasSecret(r Resource) bool { return r.Secret }
